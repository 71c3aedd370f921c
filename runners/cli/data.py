"""`vitinit data`: datasets on this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from initializers.errors import VitinitError, plain
from runners.cli.options import DataOption

data_app = typer.Typer(help="Datasets on this machine.", no_args_is_help=True)


@data_app.command()
def get(name: Annotated[str, typer.Argument(help="cifar10, cifar100 or svhn")], data_dir: DataOption = None) -> None:
    """Download a dataset and check its md5 sums."""
    from benchmark.datasets import load as datasets

    folder = datasets.data_dir(data_dir)
    datasets.download(name, folder)
    typer.echo(f"{plain(name)} is in {plain(str(folder))}")


@data_app.command()
def prepare(
    name: Annotated[str, typer.Argument(help="imagenet; or any other dataset, folder:PATH too, for FFCV")],
    source: Annotated[
        Path | None,
        typer.Option("--from", help="imagenet: folder with train/CLASS/*.JPEG and val/CLASS/*.JPEG; only read."),
    ] = None,
    allow_incomplete: Annotated[
        bool,
        typer.Option("--allow-incomplete", help="imagenet: take another number of images than the dataset has."),
    ] = False,
    image_size: Annotated[
        int | None, typer.Option(min=1, help="FFCV: side of the images, that of the model. Default: 32.")
    ] = None,
    train_size: Annotated[int | None, typer.Option(min=1, help="FFCV: the subset that a grid asks for.")] = None,
    data_dir: DataOption = None,
) -> None:
    """Make a few large files of a dataset, once, to read them quickly. After a stop, call it again.

    Of imagenet: the image files, unchanged. Of the others, for the loader ffcv: the images, decoded, at their size.
    """
    from benchmark.datasets import files as dataset_files

    folder = dataset_files.data_dir(data_dir)
    if name in dataset_files.PACKED_NAMES:
        if source is None or image_size or train_size:
            raise VitinitError(f"vitinit data prepare {name} --from DIR: no other option but --allow-incomplete")
        _pack(name, source, folder / name, allow_incomplete)
    else:
        if source or allow_incomplete:
            raise VitinitError("--from and --allow-incomplete are for imagenet; write folder:PATH for a folder")
        _decode(name, folder, image_size or 32, train_size)


def _pack(name: str, source: Path, folder: Path, allow_incomplete: bool) -> None:
    from benchmark.preparing.pack import prepare as pack
    from runners.basics.machine import cores

    with _progress(f"packing {name}") as report:
        manifest = pack(source, folder, allow_incomplete, report, cores())
    size = (manifest.train.size + manifest.val.size) / 1e9
    typer.echo(
        f"{name} is in {plain(str(folder))}: {manifest.train.images:,} training and {manifest.val.images:,} test images"
        f", {size:.1f} GB. {plain(str(source))} is no longer needed."
    )


def _decode(name: str, data_dir: Path, image_size: int, train_size: int | None) -> None:
    from benchmark.grids.parts import resolve_dataset
    from benchmark.preparing.decode import prepare_beton
    from runners.basics.machine import cores

    spec = resolve_dataset({"name": name, "train_size": train_size})
    with _progress(f"decoding {plain(spec.label)}") as report:
        folder, manifest = prepare_beton(spec, image_size, data_dir, report, cores())
    typer.echo(
        f"{plain(spec.label)} at {image_size} px is in {plain(str(folder))}: {manifest.train:,} training and "
        f"{manifest.test:,} test images, {manifest.size / 1e9:.2f} GB"
    )


@contextmanager
def _progress(text: str) -> Iterator[Callable[[int, int], None]]:
    """A bar, and what to tell it: how many images are done, and of how many."""
    from rich.markup import escape
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns) as progress:
        task = progress.add_task(escape(text), total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)
