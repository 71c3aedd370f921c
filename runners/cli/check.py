"""The command `vitinit check`: is a model sound before it is trained?"""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vitinit.initializers import plugins
from vitinit.initializers.errors import VitinitError, cause, plain
from vitinit.initializers.plugins import contained
from vitinit.runners.options import DataOption, console

if TYPE_CHECKING:
    from torch import Tensor, nn

    from vitinit.benchmark.datasets.dataset import Dataset

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
    images = labels = None
    if data is not None and classes is None:
        _, _, classes = _read(data, 8, data_dir)
    built = _model(model, classes, image_size)
    if data is not None:
        images, labels, _ = _read(data, image_size or sizes(built)[0][0], data_dir)
    report = check(built, images, labels, seed, image_size)
    console.print(*str(report).splitlines(), sep="\n", soft_wrap=True)
    raise typer.Exit(0 if report.sound else 1)


def _model(named: str, classes: int | None, image_size: int | None) -> nn.Module:
    from torch import nn

    home, _, name = named.rpartition(":")
    if not home or not name:
        raise VitinitError(f"MODEL {named!r}: write timm:NAME, package.module:make_model or path/to/file.py:make_model")
    try:
        with contained(f"MODEL {named!r}"):
            made = _of_timm(name, classes, image_size) if home == "timm" else _of_python(named)
            if not isinstance(made, nn.Module) and callable(made):
                made = made()
    except VitinitError:
        raise
    except Exception as error:  # code of anyone's may raise anything
        raise VitinitError(f"MODEL {named!r} cannot be made: {plain(cause(error), 300)}") from error
    if not isinstance(made, nn.Module):
        raise VitinitError(f"MODEL {named!r} is or returns a {type(made).__name__}, and not a torch.nn.Module")
    return made


def _of_python(named: str) -> Any:
    """Return what a file or a package calls so."""
    if plugins.in_a_file(named):
        sys.path.append(str(Path(named.rpartition(":")[0]).absolute().parent))  # for what lies beside it
        return plugins.load(plugins.pinned(named, Path.cwd()))
    from vitinit.benchmark.models.named import PythonModel

    sys.path.append(str(Path.cwd()))
    return PythonModel(python=named, image_size=32).constructor


def _of_timm(name: str, classes: int | None, image_size: int | None) -> nn.Module:
    import timm

    given: dict[str, Any] = {"num_classes": classes} if classes else {}
    if image_size:
        with suppress(TypeError):  # a convolutional network takes images of any size, and no such argument
            return timm.create_model(name, **given, img_size=image_size)
    return timm.create_model(name, **given)


def _read(data: str, size: int, data_dir: Path | None) -> tuple[Tensor, Tensor, int]:
    """Return images of a dataset, normalised by its statistics, their labels, and how many classes there are."""
    import torch

    from vitinit.benchmark.datasets import load as datasets
    from vitinit.benchmark.datasets import registry
    from vitinit.benchmark.grids.parts import resolve_dataset, resolve_recipe
    from vitinit.runners.loaders import make_loader, open_data

    spec = resolve_dataset({"name": data})
    dataset: Dataset = registry.get(spec.name)
    if dataset.dense:
        raise VitinitError(f"{spec.label} has masks, and check looks at classifiers")
    opened = open_data(spec, size, datasets.data_dir(data_dir), "auto" if dataset.streamed else "resident")
    count = len(opened.train.labels)
    recipe = resolve_recipe({"name": "small", "batch_size": min(IMAGES, count)})
    loader = make_loader(opened, recipe, 0, torch.device("cpu"))
    chosen = torch.randperm(count, generator=torch.Generator().manual_seed(0))[:IMAGES]
    return loader.plain(chosen), torch.as_tensor(opened.train.labels)[chosen].long(), len(opened.classes)
