"""`vitinit proposition`: what fixed spatial filters can do, by numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vitinit.initializers.errors import VitinitError
from vitinit.runners.cli.options import LOCAL, DataOption, console


def proposition(
    dataset: Annotated[str, typer.Option(help="Whose images are embedded.")] = "digits",
    image_size: Annotated[int, typer.Option(min=2, help="In pixels.")] = 8,
    patch_size: Annotated[int, typer.Option(min=1, help="In pixels.")] = 2,
    kernel_size: Annotated[list[int], typer.Option(min=2, help="f; repeatable.")] = [3],  # noqa: B006
    images: Annotated[int, typer.Option(min=1, help="Drawn from the training split.")] = 64,
    seed: Annotated[int, typer.Option(min=0, help="Seed of all random numbers.")] = 0,
    tolerance: Annotated[float, typer.Option(min=0, help="For the rank: smallest over largest singular value.")] = 1e-6,
    data_dir: DataOption = None,
    out: Annotated[Path, typer.Option(help="Folder for the JSON.")] = LOCAL / "proposition",
) -> None:
    """Proposition 1 of arXiv 2404.01139: error of fixed spatial filters over the number of channels."""
    from rich import box
    from rich.table import Table

    from vitinit.benchmark.datasets import load as datasets
    from vitinit.benchmark.files.atomic import write_atomically
    from vitinit.benchmark.grids.parts import resolve_dataset
    from vitinit.benchmark.image_files.arrays import Data
    from vitinit.runners.launching.execute import check_writable
    from vitinit.runners.loaders import choice, open_data
    from vitinit.runners.measuring.proposition import answer, measure

    spec, folder = resolve_dataset({"name": dataset}), datasets.data_dir(data_dir)
    if choice.decoded_size(spec, image_size, folder) > choice.main_memory():
        raise VitinitError(f"{spec.label} at {image_size} px does not fit into memory: take smaller images")
    opened = open_data(spec, image_size, folder, "resident")
    if not isinstance(opened, Data):
        raise VitinitError(f"dataset {dataset!r} is not kept in memory; choose one that is")
    check_writable(out)
    report = measure(opened, dataset, patch_size, kernel_size, images, seed, tolerance)
    console.print(answer(report))
    table = Table("filter", "f", "D", "D / (k f²)", "relative error", box=box.SIMPLE_HEAD)
    for row in report.points:
        table.add_row(row.filter, str(row.kernel_size), str(row.width), f"{row.share:g}", f"{row.error:.1e}")
    console.print(table)
    console.print(
        "f: side of a filter, in tokens; D: channels, each with one filter; k: rank of the patch embeddings. "
        "Error: what the best channel mixing behind these filters misses of a random target, relative to the target. "
        "The proposition promises that filters drawn at random miss nothing from D = k f² on."
    )
    others = ", ".join(f"{rank} ({what})" for what, rank in report.other_ranks.items())
    console.print(f"k = {report.rank}: rank of {report.images} images' patch embeddings above {tolerance:g}; {others}")
    path = out / f"{dataset}-{image_size}px-patch{patch_size}-seed{seed}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, report.model_dump_json(indent=1).encode() + b"\n")
    console.print(f"written to {path}")
