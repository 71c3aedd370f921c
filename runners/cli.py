"""The command line `vitinit`. It parses, prints and calls; the work is done elsewhere."""

from __future__ import annotations

import fnmatch
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
import yaml
from rich import box
from rich.cells import cell_len
from rich.console import Console, Group
from rich.table import Table

from benchmark.store import Outline, Store
from initializers.errors import VitinitError, plain, unknown_name
from runners import cli_records
from runners.cli_data import data_app
from runners.cli_options import LOCAL, DataOption
from runners.cli_store import store_app
from runners.markup import safe

if TYPE_CHECKING:
    from benchmark.grid import Cell, Grid
    from runners.plan import Planned

# torch and timm take seconds to import: commands import what needs them themselves, so that help comes at once.

app = typer.Typer(
    help="A reproducible benchmark of how Vision Transformers are initialised.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(data_app, name="data")
app.add_typer(store_app, name="store")
console = Console(highlight=False)

GridArgument = Annotated[
    str, typer.Argument(metavar="GRID", help="Name of a grid (vitinit list grids) or a YAML file.")
]
SeedsOption = Annotated[str | None, typer.Option(help="In place of the grid's seeds: 0-4 or 0,2,7.")]
OnlyOption = Annotated[
    list[str] | None,
    typer.Option(help="Keep runs with KEY=PATTERN; keys: row, dataset, base, method, arch, seed, id. Repeatable."),
]
LimitOption = Annotated[int | None, typer.Option(min=1, help="At most this many of the runs that are to be done.")]
ResultsOption = Annotated[Path, typer.Option(help="Where records go.")]


@app.command()
def plan(
    grid: GridArgument,
    seeds: SeedsOption = None,
    only: OnlyOption = None,
    limit: LimitOption = None,
    data_dir: DataOption = None,
    results: ResultsOption = LOCAL,
) -> None:
    """Show every run of a grid and what is to become of it. Nothing is written."""
    planned, contents, loaded = _planned(grid, seeds, only, limit, data_dir, results)
    _print_plan(loaded, planned, contents)


@app.command()
def run(
    grid: GridArgument,
    executor: Annotated[
        Literal["inline", "local"],
        typer.Option(help="inline: one after the other in this process. local: several processes."),
    ] = "local",
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes of the local executor. Default: cores or 1.")
    ] = None,
    device: Annotated[Literal["auto", "cpu", "cuda"], typer.Option(help="auto: cuda where there is one.")] = "auto",
    seeds: SeedsOption = None,
    only: OnlyOption = None,
    limit: LimitOption = None,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Run again what failed; otherwise a failure stays.")
    ] = False,
    force: Annotated[
        list[str] | None,
        typer.Option(metavar="RUN_ID", help="Begin this run anew; its record is kept under another name. Repeatable."),
    ] = None,
    deterministic: Annotated[
        bool, typer.Option("--deterministic", help="The same bits every time on a GPU too; slower.")
    ] = False,
    checkpoint_minutes: Annotated[float, typer.Option(min=0, help="Save a run after so many minutes.")] = 5.0,
    checkpoint_steps: Annotated[int | None, typer.Option(min=1, help="And after so many optimiser steps.")] = None,
    keep_weights: Annotated[
        bool, typer.Option("--keep-weights", help="Keep final weights: weights/RUN_ID.pt beside the records.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan and stop.")] = False,
    download: Annotated[bool, typer.Option(help="Download datasets that are not there.")] = True,
    data_dir: DataOption = None,
    results: ResultsOption = LOCAL,
) -> None:
    """Carry out what a grid still lacks. Run the same command again to go on after a stop."""
    from benchmark import datasets
    from benchmark.models import default_device
    from runners.checkpoint import Interval
    from runners.display import Display
    from runners.environment import code
    from runners.launch import begin_anew, cores, launch, tidy
    from runners.run import Execution, Setting, skip

    device = default_device() if device == "auto" else device  # type: ignore[assignment]
    if device == "cuda" and default_device() != "cuda":
        raise VitinitError("--device cuda: torch finds no CUDA GPU here")
    planned, contents, loaded = _planned(grid, seeds, only, limit, data_dir, results, retry_failed)
    if dry_run:
        _print_plan(loaded, planned, contents)
        return
    store = Store(results)
    folder = datasets.data_dir(data_dir)
    missing = {item.cell.spec.dataset.name: item.reason for item in planned if item.state == "skip"}
    for name in missing if download else ():
        if name in datasets.FILE_NAMES:
            console.print(f"downloading {name} to {safe(str(folder))}")
            try:
                datasets.download(name, folder)
            except VitinitError as error:
                console.print(f"[yellow]{safe(str(error))}[/yellow]")
    if force:
        begin_anew(force, [item.cell for item in planned], store, loaded.name, folder)
    if force or (missing and download):
        planned, contents, loaded = _planned(grid, seeds, only, limit, data_dir, results, retry_failed)
    for problem in contents.problems:
        console.print(f"[yellow]not a record, left alone: {safe(problem)}[/yellow]")
    for name, reason in {p.cell.spec.dataset.label: p.reason for p in planned if p.state == "skip"}.items():
        console.print(f"[yellow]skipping {safe(name)}: {safe(reason)}[/yellow]")
    for item in planned:
        if item.state == "skip":
            store.write(skip(item.cell, loaded.name, item.reason))
    done = {item.cell.spec.run_id for item in planned if item.state == "done"}
    tidy(results, loaded.name, done)
    failures = 0 if retry_failed else sum(item.state == "failed" for item in planned)
    where = safe(str(results / loaded.name))
    console.print(f"{safe(loaded.title)}\n{len(planned)} runs, {len(done)} recorded already in {where}")
    retried = {run_id: failed.written for run_id, failed in contents.failed.items()} if retry_failed else {}
    cells = [item.cell for item in planned if item.state == "to do" or (item.state == "failed" and retry_failed)]
    # runs of other launchers too: one whose owner has gone comes free
    live = [item.cell for item in planned if item.state == "live"]
    cells += [cell for cell in live if datasets.unavailable(cell.spec.dataset, folder) is None]
    if workers is None:
        workers = 1 if device == "cuda" else cores()
    threads = cores() if executor == "inline" else max(1, cores() // workers)
    setting = Setting(
        root=results,
        study=loaded.name,
        data_dir=folder,
        execution=Execution(device=device, threads=threads, executor=executor, deterministic=deterministic),
        code=code(),
        checkpoint=Interval(checkpoint_minutes, checkpoint_steps),
        keep_weights=keep_weights,
        retried=retried,
    )
    try:
        tally = launch(cells, setting, workers, Display(console))
    except KeyboardInterrupt:
        console.print(
            f"stopped; finished runs are recorded in {where}. The same command goes on with the others from where they "
            "have saved."
        )
        raise typer.Exit(130) from None
    elsewhere = f", {tally.elsewhere} run by another launcher" if tally.elsewhere else ""
    stopped = f", {tally.stopped} stopped (the same command goes on with them)" if tally.stopped else ""
    console.print(f"{tally.finished} runs finished, {tally.failed} failed{stopped}{elsewhere}; records in {where}")
    if failures:
        console.print(f"{failures} runs failed before and were left alone: --retry-failed runs them again")
    if tally.failed or failures:
        console.print(f"see: vitinit status {safe(grid)}")
    if tally.failed or failures or tally.stopped:
        raise typer.Exit(1)


@app.command()
def status(
    grid: GridArgument,
    seeds: SeedsOption = None,
    only: OnlyOption = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Show it anew until nothing is live or to do, or until Ctrl-C.")
    ] = False,
    interval: Annotated[float, typer.Option(min=0.1, help="Seconds between two looks with --watch.")] = 5.0,
    data_dir: DataOption = None,
    results: ResultsOption = LOCAL,
) -> None:
    """Count what is done, live, failed, skipped and still to do, by row and dataset."""
    from rich.live import Live

    store, loaded = Store(results), _loaded(grid, seeds)
    planned, contents = _planned_of(loaded, store, only, data_dir)
    if not watch:
        console.print(_status(loaded, planned, contents))
        return
    with suppress(KeyboardInterrupt), Live(_status(loaded, planned, contents), console=console) as view:
        while any(item.state in ("live", "to do") for item in planned):
            time.sleep(interval)
            planned, contents = _planned_of(loaded, store, only, data_dir)
            view.update(_status(loaded, planned, contents), refresh=True)


app.command()(cli_records.show)
app.command()(cli_records.reproduce)


@app.command("list")
def list_(kind: Annotated[str, typer.Argument(help="initializers, datasets, models, recipes or grids")]) -> None:
    """List what a grid can name."""
    kinds = ("initializers", "datasets", "models", "recipes", "grids")
    if kind not in kinds:
        raise unknown_name("kind", kind, kinds)
    from benchmark import datasets, grid, models
    from initializers import registry

    if kind == "initializers":
        for name in registry.names():
            cls = registry.get(name)
            console.print(f"[bold]{safe(name)}[/bold] ({cls.kind}): {safe((cls.__doc__ or '').splitlines()[0])}")
            for field, info in cls.model_fields.items():
                console.print(f"    {field} = {safe(str(info.get_default(call_default_factory=True)))}")
    elif kind == "datasets":
        folder = datasets.data_dir(None)
        for name in datasets.NAMES:
            if name == "folder":
                console.print("folder:PATH  any folder of images, one subfolder a class")
            else:
                reason = datasets.unavailable(grid.resolve_dataset({"name": name}), folder)
                console.print(f"{name}  {safe(reason) if reason else 'available'}")
    elif kind == "models":
        for name, fields in models.PRESETS.items():
            console.print(f"{name}  " + ", ".join(f"{key} {value}" for key, value in fields.items()))
    elif kind == "recipes":
        for name in grid.recipes():
            recipe = grid.resolve_recipe({"name": name})
            console.print(f"[bold]{name}[/bold]")
            console.print(yaml.safe_dump(recipe.model_dump(mode="json", exclude={"name"}), sort_keys=False, indent=4))
    else:
        for name in grid.names():
            loaded = grid.load(name)
            console.print(f"{name}  {len(loaded.cells)} runs  {safe(loaded.title)}")


def _planned(
    grid: str,
    seeds: str | None,
    only: list[str] | None,
    limit: int | None,
    data_dir: Path | None,
    results: Path,
    retry_failed: bool = False,
) -> tuple[list[Planned], Outline, Grid]:
    loaded = _loaded(grid, seeds)
    kept, contents = _planned_of(loaded, Store(results), only, data_dir)
    if limit is not None:
        wanted = ("to do", "failed") if retry_failed else ("to do",)
        to_do = [item for item in kept if item.state in wanted]
        kept = [item for item in kept if item.state not in wanted] + to_do[:limit]
    return kept, contents, loaded


def _loaded(grid: str, seeds: str | None) -> Grid:
    from benchmark import grid as grids

    return grids.load(grid, _seeds(seeds))


def _planned_of(
    grid: Grid, store: Store, only: list[str] | None, data_dir: Path | None
) -> tuple[list[Planned], Outline]:
    from benchmark.dataset_files import data_dir as data_folder
    from runners.plan import plan as plan_grid

    planned, contents = plan_grid(grid, store, data_folder(data_dir))
    kept = [item for item in planned if all(_matches(item.cell, condition) for condition in only or ())]
    if planned and not kept:
        raise VitinitError(f"--only {' --only '.join(only or ())}: no run of grid {grid.name!r} matches")
    return kept, contents


def _seeds(text: str | None) -> list[int] | None:
    if text is None:
        return None
    seeds: list[int] = []
    try:
        for part in text.split(","):
            first, _, last = part.partition("-")
            named = range(int(first), int(last or first) + 1)
            if not named:
                raise VitinitError(f"--seeds {text!r}: {part!r} names no seed")
            seeds += named
    except ValueError:
        raise VitinitError(f"--seeds {text!r}: write 0-4 or 0,2,7") from None
    return seeds


def _matches(cell: Cell, condition: str) -> bool:
    spec = cell.spec
    values = {
        "row": cell.row,
        "dataset": spec.dataset.label,
        "base": spec.base.name,
        "method": spec.method.name if spec.method else "none",
        "arch": spec.model.arch,
        "seed": str(spec.seed),
        "id": cell.run_id,
    }
    key, separator, pattern = condition.partition("=")
    if not separator:
        raise VitinitError(f"--only {condition!r}: write KEY=PATTERN; keys: {', '.join(values)}")
    if key not in values:
        raise unknown_name("key of --only", key, values)
    # the brackets of "cifar10[5000]" are meant literally, and the bare name means the dataset at any size
    value, pattern = values[key].lower(), pattern.lower().replace("[", "[[]")
    return fnmatch.fnmatchcase(value, pattern) or (key == "dataset" and value.partition("[")[0] == pattern)


def _print_plan(grid: Grid, planned: list[Planned], contents: Outline) -> None:
    lines = [("run", "row", "dataset", "seed", "epochs", "state")]
    for item in planned:
        spec, reason = item.cell.spec, f": {item.reason}" if item.reason and item.state in ("failed", "to do") else ""
        numbers = str(spec.seed), str(spec.recipe.epochs)
        lines.append((item.cell.run_id, item.cell.row, spec.dataset.label, *numbers, item.state + reason))
    # Not through rich, which takes seconds for thousands of lines and would break them at the terminal's width.
    columns = [_aligned(column, right=i in (3, 4)) for i, column in enumerate(zip(*lines, strict=True))]
    heading, *rest = ("  ".join(line).rstrip() for line in zip(*columns, strict=True))
    console.print(f"{safe(grid.title)}\n[bold]{heading}[/bold]", soft_wrap=True)
    print("\n".join(rest), file=console.file)
    console.print(_details(planned, contents))


def _aligned(column: Sequence[str], right: bool) -> list[str]:
    """The texts of a column, safe to print and all of one width."""
    shown = {text: plain(text) for text in set(column)}
    width = max(map(cell_len, shown.values()))
    for text, printed in shown.items():
        gap = " " * (width - cell_len(printed))
        shown[text] = gap + printed if right else printed + gap
    return [shown[text] for text in column]


def _status(grid: Grid, planned: list[Planned], contents: Outline) -> Group:
    from runners.plan import STATES

    table = Table(title=safe(grid.title), box=box.SIMPLE_HEAD)
    for heading in ("row", "dataset", *STATES, "top-1 (last epoch)"):
        table.add_column(heading, justify="left" if heading in ("row", "dataset") else "right")
    groups: dict[tuple[str, str], list[Planned]] = {}
    for item in planned:
        groups.setdefault((item.cell.row, item.cell.spec.dataset.label), []).append(item)
    for (row, dataset), items in groups.items():
        top1 = [contents.done[item.cell.run_id].top1 for item in items if item.state == "done"]
        counts = Counter(item.state for item in items)
        mean = f"{sum(top1) / len(top1):.2f}% (n={len(top1)})" if top1 else ""
        table.add_row(safe(row), safe(dataset), *(str(counts[state] or "") for state in STATES), mean)
    failed = [f"failed {p.cell.run_id}, {p.cell.describe()}: {p.reason}" for p in planned if p.state == "failed"]
    return Group(table, *(safe(line) for line in failed), _details(planned, contents))


def _details(planned: list[Planned], contents: Outline) -> str:
    """The counts, and what needs a sentence: who runs what, which dataset is missing, which file is no record."""
    from runners.plan import STATES

    counts = Counter(item.state for item in planned)
    lines = [f"{len(planned)} runs: " + ", ".join(f"{counts[state]} {state}" for state in STATES if counts[state])]
    lines += [f"live {p.cell.run_id}, {p.cell.describe()}: {p.reason}" for p in planned if p.state == "live"]
    missing = {p.cell.spec.dataset.label: p.reason for p in planned if p.state == "skip"}
    lines += [f"skip {dataset}: {reason}" for dataset, reason in missing.items()]
    lines += [f"not a record, left alone: {problem}" for problem in contents.problems]
    return "\n".join(safe(line) for line in lines)


def main() -> None:
    """Entry point: one line and exit code 2 for anything the user can mend."""
    try:
        app()
    except VitinitError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
