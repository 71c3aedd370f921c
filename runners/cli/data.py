"""`vitinit data`: datasets on this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vitinit.initializers.errors import VitinitError, printable
from vitinit.runners.options import DataOption, console

if TYPE_CHECKING:
    from vitinit.benchmark.datasets.packed import Packed

data_app = typer.Typer(help="Datasets on this machine.", no_args_is_help=True)


@data_app.command()
def get(
    name: Annotated[str, typer.Argument(help="One that is downloaded: vitinit list datasets")],
    data_dir: DataOption = None,
) -> None:
    """Download a dataset and check its md5 sums; archives of images are packed."""
    from vitinit.benchmark.datasets import load as datasets
    from vitinit.benchmark.datasets import registry

    folder = datasets.data_dir(data_dir)
    if name in registry.names() and registry.get(name).packed:
        with _progress(f"getting {name}") as report:
            datasets.download(name, folder, report)
    else:  # torchvision draws a bar of its own
        datasets.download(name, folder)
    console.print(f"{name} is in {folder}")


@data_app.command()
def prepare(
    name: Annotated[str, typer.Argument(help="vitinit list datasets; folder:PATH too")],
    source: Annotated[
        Path | None,
        typer.Option("--from", help="Packing: folder with train/CLASS/*.JPEG and val/CLASS/*.JPEG; only read."),
    ] = None,
    allow_incomplete: Annotated[
        bool,
        typer.Option("--allow-incomplete", help="Packing: take another number of images than the dataset has."),
    ] = False,
    image_size: Annotated[
        int | None, typer.Option(min=1, help="FFCV: side of the images, that of the model. Default: 32.")
    ] = None,
    train_size: Annotated[int | None, typer.Option(min=1, help="FFCV: the subset that a grid asks for.")] = None,
    data_dir: DataOption = None,
) -> None:
    """Make a few large files of a dataset, once, to read them quickly. After a stop, call it again.

    A dataset too large for memory is packed: its image files, unchanged. Of the others, for the loader ffcv: the
    images, decoded, at their size.
    """
    from vitinit.benchmark.datasets import load as datasets
    from vitinit.benchmark.datasets import registry
    from vitinit.benchmark.datasets.packed import Packed

    folder = datasets.data_dir(data_dir)
    dataset = registry.get(name) if name in registry.names() else None
    if isinstance(dataset, Packed):
        if dataset.downloaded:
            raise VitinitError(f"{name} is packed by 'vitinit data get {name}'")
        if source is None or image_size or train_size:
            raise VitinitError(f"vitinit data prepare {name} --from DIR: no other option but --allow-incomplete")
        _pack(dataset, source, folder / name, allow_incomplete)
    else:
        if source or allow_incomplete:
            packed = ", ".join(
                each for each in registry.names() if registry.get(each).packed and not registry.get(each).downloaded
            )
            raise VitinitError(f"--from and --allow-incomplete are for {packed}; write folder:PATH for a folder")
        _decode(name, folder, image_size or 32, train_size)


def _pack(dataset: Packed, source: Path, folder: Path, allow_incomplete: bool) -> None:
    from vitinit.benchmark.preparing.pack import prepare as pack
    from vitinit.runners.basics.machine import cores

    with _progress(f"packing {dataset.name}") as report:
        manifest = pack(dataset, source, folder, allow_incomplete, report, cores())
    size = (manifest.train.size + manifest.val.size) / 1e9
    console.print(
        f"{dataset.name} is in {folder}: {manifest.train.images:,} training and "
        f"{manifest.val.images:,} test images, {size:.1f} GB. {source} is no longer needed."
    )


def _decode(name: str, data_dir: Path, image_size: int, train_size: int | None) -> None:
    from vitinit.benchmark.grids.parts import resolve_dataset
    from vitinit.benchmark.preparing.decode import prepare_beton
    from vitinit.runners.basics.machine import cores

    spec = resolve_dataset({"name": name, "train_size": train_size})
    with _progress(f"decoding {spec.label}") as report:
        folder, manifest = prepare_beton(spec, image_size, data_dir, report, cores())
    console.print(
        f"{spec.label} at {image_size} px is in {folder}: {manifest.train:,} training and "
        f"{manifest.test:,} test images, {manifest.size / 1e9:.2f} GB"
    )


@contextmanager
def _progress(text: str) -> Iterator[Callable[[int, int], None]]:
    """A bar, and what to tell it: how many images are done, and of how many."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns) as progress:
        task = progress.add_task(printable(text), total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)
