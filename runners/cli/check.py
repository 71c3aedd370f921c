"""The command `vitinit check`: is a model sound before it is trained?"""

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vitinit.initializers import plugins
from vitinit.initializers.errors import VitinitError
from vitinit.runners.options import console

if TYPE_CHECKING:
    from torch import nn


def check(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL", help="timm:NAME, package.module:make_model or path/to/file.py:make_model (or a model)."
        ),
    ],
    classes: Annotated[
        int | None,
        typer.Option(min=2, metavar="N", help="Number of classes; a model that takes num_classes is made with it."),
    ] = None,
    image_size: Annotated[
        int | None, typer.Option(min=1, metavar="PIXELS", help="Side of the images. Default: the model's own.")
    ] = None,
) -> None:
    """Check whether a model is sound before it is trained; with images of your own: vitinit.check in Python.

    Warnings come with what usually helps. Nothing is trained, nothing is written. Exit code 1: there are warnings.
    """
    import torch

    from vitinit.initializers.check import check

    torch.manual_seed(0)
    report = check(_model(model, classes, image_size), image_size=image_size)
    if classes not in (None, report.classes):
        raise VitinitError(
            f"MODEL {model!r} has {report.classes} classes, and takes no num_classes={classes}: leave --classes out"
        )
    console.print(*str(report).splitlines(), sep="\n", soft_wrap=True)
    raise typer.Exit(0 if report.sound else 1)


def _model(named: str, classes: int | None, image_size: int | None) -> "nn.Module":
    from torch import nn

    from vitinit.benchmark.fields import parsed
    from vitinit.benchmark.models.named import SIZES, PythonModel, TimmModel, called

    home, _, name = named.rpartition(":")
    if not home or not name:
        raise VitinitError(f"MODEL {named!r}: write timm:NAME, package.module:make_model or path/to/file.py:make_model")
    if home == "timm":
        spec = parsed(TimmModel, TimmModel.of_grid({"timm": name, "img_size": image_size}), f"MODEL {named!r}")
        made: Any = partial(spec.build, classes or 1000)
    else:
        # a file may import what lies beside it
        sys.path += [str(Path(home).absolute().parent), str(Path.cwd())]
        made = PythonModel(python=plugins.pinned(named, Path.cwd()), image_size=32).constructor
    if not isinstance(made, nn.Module) and callable(made):
        with plugins.imported(f"MODEL {named!r} cannot be made", VitinitError):
            wanted = {"num_classes": classes, **dict.fromkeys(SIZES, image_size)}
            made = called(made, {name: value for name, value in wanted.items() if value and home != "timm"})
    if not isinstance(made, nn.Module):
        raise VitinitError(f"MODEL {named!r} is or returns a {type(made).__name__}, and not a torch.nn.Module")
    return made
