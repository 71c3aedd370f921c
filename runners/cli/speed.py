"""`vitinit speed`: how fast this machine loads, augments, trains, initialises and saves."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich import box
from rich.table import Table

from vitinit.benchmark import speed as report
from vitinit.benchmark.fields import Frozen
from vitinit.benchmark.files.atomic import write_atomically
from vitinit.initializers.errors import VitinitError, plain, unknown_name
from vitinit.runners.basics.machine import MOST_THREADS
from vitinit.runners.cli.options import LOCAL, ResultsOption, terminal

if TYPE_CHECKING:
    from vitinit.runners.measuring.speed import Meter

PARTS = ("loaders", "training", "scaling", "initializers", "checkpoints", "compiling")
MODELS = ("vit_tiny/4", "vit_tiny/2")
OTHERS = ("vit_base/16@224", "convit_tiny/4")
"""Of other kinds that an initialiser may need; they take minutes, and are left out where models are asked for."""
NO_PEAK = "faster than it"
"""In place of a share of the matrix product: that product is not the peak then."""


def speed(
    device: Annotated[Literal["auto", "cpu", "cuda"], typer.Option(help="auto: cuda where there is one.")] = "auto",
    threads: Annotated[int | None, typer.Option(min=1, max=MOST_THREADS, help="Of torch. Default: one a core.")] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(help="PRESET/PATCH or PRESET/PATCH@PIXELS; repeatable. Default: vit_tiny/4 and vit_tiny/2."),
    ] = None,
    only: Annotated[list[str] | None, typer.Option(help=f"Of {', '.join(PARTS)}; repeatable. Default: all.")] = None,
    batch_size: Annotated[
        int | None, typer.Option(min=1, help="For training. Default: 512 on a GPU, 64 on a CPU.")
    ] = None,
    seconds: Annotated[float, typer.Option(min=0.01, help="At least so long for each number.")] = 2.0,
    results: ResultsOption = LOCAL,
) -> None:
    """Measure this machine: print it, and write it to speed/MACHINE/speed.json in the results folder.

    `vitinit plan GRID --estimate` turns it into hours. Nothing else should run meanwhile. Exit code 1: a part could not
    be measured.
    """
    import torch

    from vitinit.runners.basics.environment import code, environment, set_flags
    from vitinit.runners.basics.machine import cores, default_device
    from vitinit.runners.basics.setting import Execution
    from vitinit.runners.launching.launch import check_writable
    from vitinit.runners.measuring.speed import LARGEST_BATCH, Meter, model_of

    for part in only or ():
        if part not in PARTS:
            raise unknown_name("part of --only", part, PARTS)
    if device == "cuda" and default_device() != "cuda":
        raise VitinitError("--device cuda: torch finds no CUDA GPU here")
    chosen = default_device() if device == "auto" else device
    if batch_size and batch_size > LARGEST_BATCH:
        raise VitinitError(f"--batch-size {batch_size}: at most {LARGEST_BATCH}, so that an epoch has three steps")
    models = dict(model_of(text) for text in model or MODELS)
    others = {} if model else dict(map(model_of, OTHERS))
    check_writable(results / "speed")
    count = threads or cores()
    set_flags(Execution(chosen, count, "inline"))
    meter = Meter(torch.device(chosen), seconds)
    machine = environment(meter.device, code())
    terminal.print(f"measuring {machine['gpu'] or machine['processor']}, {count} threads; this takes minutes")
    for precision, reason in meter.left_out.items():
        terminal.print(f"{precision} is left out, being many times slower than fp32 here ({reason})", soft_wrap=True)
    for precision in meter.precisions:
        meter.matmul(precision)
    wanted = [part for part in PARTS if part in (only or PARTS)]
    found: dict[str, list[Any]] = {part: [] for part in PARTS}
    left_out, unfinished = [], None
    for part in wanted:
        of_part = models | others if part == "initializers" else models
        rows, title, columns = _measurements(part, meter, of_part, batch_size, results)
        try:
            _measure(rows, title, columns, found[part])
        except (VitinitError, RuntimeError, MemoryError, OSError) as error:  # torch has no memory, or no compiler
            left_out.append(part)
            terminal.print(f"{part} cannot be measured: {plain(str(error), 200)}", style="yellow", soft_wrap=True)
        if found[part]:
            unfinished = _write(meter, count, machine, found, results)
    peaks = ", ".join(f"{precision} {gflops:,.0f}" for precision, gflops in meter.matmul_gflops.items())
    terminal.print(f"matrix products of {meter.matmul_size} x {meter.matmul_size}, best, in GFLOP/s: {peaks}")
    if unfinished:
        path = unfinished.replace(unfinished.with_name(report.NAME))
        terminal.print(f"written to {path}")
    if left_out:
        raise typer.Exit(1)


def _write(meter: Meter, threads: int, machine: dict[str, Any], found: dict[str, list[Any]], results: Path) -> Path:
    """Write what has been measured up to now, beside the report of before: a later part may end the process."""
    from vitinit.runners.one_run.outcome import now

    measured = report.SpeedReport(
        written=now(),
        device=meter.device.type,
        threads=threads,
        machine=machine,
        matmul_gflops=meter.matmul_gflops,
        matmul_size=meter.matmul_size,
        **found,
    )
    path = report.path(results, measured).with_name("unfinished.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, measured.model_dump_json(indent=1).encode() + b"\n")
    return path


Columns = dict[str, Callable[[Any], str]]


def _measurements(
    part: str, meter: Meter, models: dict[str, Any], batch_size: int | None, results: Path
) -> tuple[Iterable[Frozen], str, Columns]:
    """What is measured, the title of its table, and what it shows."""
    rate: Columns = {"images/s": lambda row: f"{row.images_per_s:,.0f}"}
    training: Columns = {
        "precision": lambda row: row.precision,
        "batch": lambda row: str(row.batch_size),
        **rate,
        "GFLOP/s": lambda row: f"{row.gflops:,.0f}",
        "of the matmul peak": lambda row: NO_PEAK if row.share_of_peak is None else f"{row.share_of_peak:.2f}",
    }
    if part == "loaders":
        columns: Columns = {"loader": lambda row: row.loader, "augmentation": lambda row: row.augmentation, **rate}
        return _loaders(meter), "loading, batches of 512 images of 32 x 32", columns
    if part == "training":
        columns = {"model": lambda row: row.model, **training, "peak MiB": lambda row: f"{row.peak_memory_mib:,.0f}"}
        return _training(meter, models, batch_size), "training, flip and RandAugment on, loading included", columns
    if part == "scaling":
        shape: Columns = {"tokens": lambda row: str(row.tokens), "width": lambda row: str(row.width)}
        return _scaling(meter), "two layers: batch, tokens and width", {**shape, **training}
    if part == "initializers":
        columns = {
            "initializer": lambda row: row.initializer,
            "parameters": lambda row: ", ".join(f"{key} {value}" for key, value in row.params.items()),
            "model": lambda row: row.model,
            "seconds": lambda row: f"{row.seconds:.3f}" + (" (in proportion)" if row.measured_steps else ""),
        }
        return meter.initializers(models), "initialising", columns
    if part == "checkpoints":
        columns = {"model": lambda row: row.model, "MB": lambda row: f"{row.megabytes:.0f}"}
        columns["seconds"] = lambda row: f"{row.seconds:.2f}"
        return (meter.checkpoint(*item, results) for item in models.items()), "saving", columns
    columns = {
        "model": lambda row: row.model,
        "precision": lambda row: row.precision,
        "seconds": lambda row: f"{row.first_s:.0f}",
        "for the next seed": lambda row: f"{row.again_s:.0f}",
        "faster": lambda row: f"{row.faster:.2f}x",
    }
    fastest = max(meter.matmul_gflops, key=lambda precision: meter.matmul_gflops[precision])
    return (meter.compiling(*item, fastest) for item in list(models.items())[:1]), "torch.compile", columns


def _loaders(meter: Meter) -> Iterator[report.LoaderSpeed]:
    from vitinit.benchmark.image_files.beton import ffcv_missing
    from vitinit.runners.loaders import make_loader
    from vitinit.runners.measuring.random_images import beton
    from vitinit.runners.measuring.speed import AUGMENTATIONS, LOADER_BATCH, PAPERS, recipe

    for name, fields in AUGMENTATIONS.items():
        loader = make_loader(meter.data, recipe(LOADER_BATCH, "fp32", **fields), 0, meter.device)
        yield meter.loader("resident", loader, name, 32)
    if missing := ffcv_missing():
        terminal.print(f"without FFCV: {missing}")
        return
    with tempfile.TemporaryDirectory() as folder:
        data = beton(meter.data, Path(folder))
        for name in ("none", PAPERS):
            loader = make_loader(data, recipe(LOADER_BATCH, "fp32", **AUGMENTATIONS[name]), 0, meter.device)
            yield meter.loader("ffcv", loader, name, 32)


def _training(meter: Meter, models: dict[str, Any], batch_size: int | None) -> Iterator[report.TrainingSpeed]:
    for name, spec in models.items():
        for precision in meter.precisions:
            yield meter.training(name, spec, precision, batch_size)


def _scaling(meter: Meter) -> Iterator[report.TrainingSpeed]:
    from vitinit.runners.measuring.speed import scaling

    for spec, batch_size in scaling():
        for precision in meter.precisions[:2]:
            name = f"{spec.depth} layers, width {spec.width}"
            yield meter.training(name, spec, precision, batch_size, "none")


def _measure(rows: Iterable[Frozen], title: str, columns: Columns, measured: list[Any]) -> None:
    """Measure, add each row to `measured`, and print a table of them: of those there are, where one cannot be had."""
    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left")
    for heading in columns:
        table.add_column(heading, justify="right" if heading[0].isupper() or heading == "images/s" else "left")
    try:
        with terminal.status(f"measuring: {title}") as status:
            for row in rows:
                measured.append(row)
                status.update(f"measuring: {title}, {len(measured)} done")
                table.add_row(*(show(row) for show in columns.values()))
    finally:
        if measured:
            terminal.print(table)
