"""The command `vitinit check`: is a model sound before it is trained?"""

from __future__ import annotations

import difflib
import importlib
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from vitinit.initializers import own_files
from vitinit.initializers.errors import VitinitError, cause, plain, unknown_name
from vitinit.runners.options import DataOption

if TYPE_CHECKING:
    from torch import Tensor, nn

IMAGES = 16
"""Default number of images of a dataset."""


def check(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL", help="timm:NAME, package.module:make_model or path/to/file.py:make_model (or a model)."
        ),
    ],
    classes: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="How many classes there are; timm's models are made with it.")
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Dataset of the images: folder:PATH, or one of vitinit list datasets."),
    ] = None,
    image_size: Annotated[
        int | None, typer.Option(min=1, metavar="PIXELS", help="Side of the images. Default: the model's own.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the model and of all random numbers.")] = 0,
    data_dir: DataOption = None,
) -> None:
    """Check whether a model is sound before it is trained.

    Warnings come with what usually helps. Nothing is trained, nothing is written. Exit code 1: there are warnings.
    """
    import torch

    from vitinit.initializers.check import check, sizes

    torch.manual_seed(seed)
    dataset = _opened(data, data_dir) if data is not None else None
    if classes is None and dataset is not None:
        classes = dataset[1]
    built = _model(model, classes, image_size)
    images = labels = None
    if dataset is not None:
        images, labels = dataset[0](image_size or sizes(built)[0][0], built)
    report = check(built, images, labels, classes, seed, image_size)
    typer.echo(str(report))
    raise typer.Exit(0 if report.sound else 1)


def _model(named: str, classes: int | None, image_size: int | None) -> nn.Module:
    from torch import nn

    home, _, name = named.rpartition(":")
    if not home or not name:
        raise VitinitError(f"MODEL {named!r}: write timm:NAME, package.module:make_model or path/to/file.py:make_model")
    if home == "timm":
        return _of_timm(name, classes, image_size)
    made = _attribute(home, name)
    if isinstance(made, nn.Module):
        return made
    if not callable(made):
        raise VitinitError(f"MODEL {named!r}: {name} is a {type(made).__name__}, neither a model nor a function")
    model = _called(made, f"MODEL {named!r}")
    if not isinstance(model, nn.Module):
        raise VitinitError(f"MODEL {named!r}: {name}() returns a {type(model).__name__}, not a torch.nn.Module")
    return model


def _called(make: Callable[..., Any], what: str, **given: Any) -> Any:
    from vitinit.initializers.foreign import contained

    try:
        with contained(what):
            return make(**given)
    except VitinitError:
        raise
    except Exception as error:  # code of anyone's
        raise VitinitError(f"{what} cannot be made: {plain(cause(error), 300)}") from error


def _of_timm(name: str, classes: int | None, image_size: int | None) -> nn.Module:
    import timm

    if name.partition(".")[0] not in (known := timm.list_models()):
        near = difflib.get_close_matches(name[:200], known, n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(map(repr, near))}? " if near else ""
        raise VitinitError(f"unknown model of timm {plain(name, 80)!r}; {hint}timm.list_models() names all")
    given: dict[str, Any] = {"num_classes": classes} if classes else {}
    if image_size:
        with suppress(TypeError):  # a convolutional network takes images of any size, and no such argument
            return timm.create_model(name, **given, img_size=image_size)
    return cast("nn.Module", _called(timm.create_model, f"MODEL 'timm:{name}'", model_name=name, **given))


def _attribute(home: str, name: str) -> Any:
    from vitinit.initializers.foreign import contained

    what, file = f"MODEL '{home}:{name}'", Path(home)
    if home.endswith(".py") and not file.is_file():
        raise VitinitError(f"there is no file {home}; write path/to/file.py:make_model")
    try:
        with contained(what):
            if home.endswith(".py"):
                sys.path.append(str(file.absolute().parent))  # for what lies beside it
                module = own_files.import_file(file, f"_checked_{file.stem}")
            else:
                sys.path.append(str(Path.cwd()))
                module = importlib.import_module(home)
    except VitinitError:
        raise
    except Exception as error:  # code of anyone's may raise anything while it is imported
        raise VitinitError(f"{what} cannot be imported: {plain(cause(error), 300)}") from error
    if not hasattr(module, name):
        raise unknown_name(f"name in {home}", name, [one for one in vars(module) if not one.startswith("_")])
    return getattr(module, name)


Read = Any
"""Function of an image size and a model: images, normalised by the dataset's statistics, and labels."""


def _opened(data: str, data_dir: Path | None) -> tuple[Read, int]:
    """Return a function that reads images of a dataset, and its number of classes; opens it once at a small size."""
    import torch

    from vitinit.benchmark.datasets import load as datasets
    from vitinit.benchmark.datasets import registry
    from vitinit.benchmark.grids.parts import resolve_dataset, resolve_recipe
    from vitinit.runners.loaders import make_loader, open_data

    spec, folder = resolve_dataset({"name": data}), datasets.data_dir(data_dir)
    if registry.get(spec.name).dense:
        raise VitinitError(f"{spec.label} has masks, and check looks at classifiers")
    wanted = "auto" if registry.get(spec.name).streamed else "resident"

    def read(size: int, model: nn.Module) -> tuple[Tensor, Tensor]:
        opened = open_data(spec, size, folder, wanted)
        recipe = resolve_recipe({"name": "small"})
        recipe = recipe.model_copy(update={"batch_size": min(recipe.batch_size, len(opened.train.labels))})
        loader = make_loader(opened, recipe, 0, torch.device("cpu"))
        chosen = torch.randperm(len(opened.train.labels), generator=torch.Generator().manual_seed(0))[:IMAGES]
        return loader.plain(chosen), torch.as_tensor(opened.train.labels)[chosen].long()

    classes = len(open_data(spec, 8, folder, wanted).classes)
    return read, classes
