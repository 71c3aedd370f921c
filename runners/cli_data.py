"""`vitinit data`: datasets on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from initializers.errors import VitinitError, plain
from runners.cli_options import DataOption

data_app = typer.Typer(help="Datasets on this machine.", no_args_is_help=True)


@data_app.command()
def get(name: Annotated[str, typer.Argument(help="cifar10, cifar100 or svhn")], data_dir: DataOption = None) -> None:
    """Download a dataset and check its md5 sums."""
    from benchmark import datasets

    folder = datasets.data_dir(data_dir)
    datasets.download(name, folder)
    typer.echo(f"{plain(name)} is in {plain(str(folder))}")


@data_app.command()
def prepare(
    name: Annotated[str, typer.Argument(help="imagenet")],
    source: Annotated[
        Path, typer.Option("--from", help="Folder with train/CLASS/*.JPEG and val/CLASS/*.JPEG; only read.")
    ],
    allow_incomplete: Annotated[
        bool, typer.Option("--allow-incomplete", help="Take another number of images than the dataset has.")
    ] = False,
    data_dir: DataOption = None,
) -> None:
    """Pack the image files of a dataset, unchanged, into a few large files. After a stop, call it again."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from benchmark import dataset_files
    from benchmark.prepare import prepare as pack
    from runners.launch import cores

    if name not in dataset_files.PACKED_NAMES:
        raise VitinitError(
            f"there is nothing to prepare for {name}; to prepare: {', '.join(dataset_files.PACKED_NAMES)}"
        )
    folder = dataset_files.data_dir(data_dir) / name
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns) as progress:
        task = progress.add_task(f"packing {name}", total=None)
        manifest = pack(
            source,
            folder,
            allow_incomplete,
            lambda done, total: progress.update(task, completed=done, total=total),
            cores(),
        )
    size = (manifest.train.size + manifest.val.size) / 1e9
    typer.echo(
        f"{name} is in {plain(str(folder))}: {manifest.train.images:,} training and {manifest.val.images:,} test images"
        f", {size:.1f} GB. {plain(str(source))} is no longer needed."
    )
