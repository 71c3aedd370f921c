"""`vitinit data`: datasets on this machine."""

from typing import Annotated

import typer

from vitinit.benchmark.datasets import registry as datasets
from vitinit.initializers.errors import VitinitError, printable
from vitinit.runners.options import DataOption, console

data_app = typer.Typer(help="Datasets on this machine.", no_args_is_help=True)


@data_app.command()
def get(
    name: Annotated[str, typer.Argument(help="One that is downloaded: vitinit list datasets")],
    data_dir: DataOption = None,
) -> None:
    """Download a dataset with torchvision, which checks its md5 sums."""
    folder = datasets.data_dir(data_dir)
    datasets.download(name, folder)
    console.print(f"{name} is in {folder}")


@data_app.command()
def prepare(
    name: Annotated[str, typer.Argument(help="vitinit list datasets; folder:PATH too")],
    image_size: Annotated[
        int | None, typer.Option(min=1, help="Side of the images, that of the model; default: 32.")
    ] = None,
    jpeg: Annotated[
        bool, typer.Option("--jpeg", help="JPEGs, for recipes that crop images of their own size.")
    ] = False,
    train_size: Annotated[int | None, typer.Option(min=1, help="The subset that a grid asks for.")] = None,
    data_dir: DataOption = None,
) -> None:
    """Write a dataset into one file for the loader ffcv; ImageNet always in JPEGs. After a stop, call it again."""
    from rich.progress import Progress

    from vitinit.benchmark.grids.grid import resolve_dataset
    from vitinit.benchmark.image_files.beton import prepare_beton

    spec, folder = resolve_dataset({"name": name, "train_size": train_size}), datasets.data_dir(data_dir)
    if reason := datasets.unavailable(spec, folder):
        raise VitinitError(reason)
    own_size = jpeg or datasets.get(spec.name).streamed
    if own_size and image_size:
        raise VitinitError(f"{spec.label}: JPEGs are in their own size; leave --image-size out")
    size = None if own_size else image_size or 32
    with Progress() as progress:
        task = progress.add_task(printable(f"writing {spec.label}"))
        made = prepare_beton(spec, size, folder, lambda done, total: progress.update(task, completed=done, total=total))
    console.print(f"{spec.label} is in {made}")
