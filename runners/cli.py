"""The command line `vitinit`. It parses, prints and calls; the work is done elsewhere."""

from __future__ import annotations

import fnmatch
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
import yaml
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from benchmark.store import Contents, Store
from initializers.errors import VitinitError, unknown_name
from runners import cli_records
from runners.cli_store import store_app

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
data_app = typer.Typer(help="Datasets on this machine.", no_args_is_help=True)
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
DataOption = Annotated[Path | None, typer.Option(help="Where datasets lie. Default: $VITINIT_DATA, else ./data.")]
ResultsOption = Annotated[Path, typer.Option(help="Where records go.")]
LOCAL = Path("results/local")


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
            console.print(f"downloading {name} to {escape(str(folder))}")
            try:
                datasets.download(name, folder)
            except VitinitError as error:
                console.print(f"[yellow]{escape(str(error))}[/yellow]")
    if force:
        begin_anew(force, [item.cell for item in planned], store, loaded.name)
    if force or (missing and download):
        planned, contents, loaded = _planned(grid, seeds, only, limit, data_dir, results, retry_failed)
    for problem in contents.problems:
        console.print(f"[yellow]not a record, left alone: {escape(problem)}[/yellow]")
    for name, reason in {p.cell.spec.dataset.label: p.reason for p in planned if p.state == "skip"}.items():
        console.print(f"[yellow]skipping {escape(name)}: {escape(reason)}[/yellow]")
    for item in planned:
        if item.state == "live":
            console.print(f"{item.cell.spec.run_id}  {escape(item.cell.describe())}: is run by {escape(item.reason)}")
        if item.state == "skip":
            store.write(skip(item.cell, loaded.name, item.reason))
    done = {item.cell.spec.run_id for item in planned if item.state == "done"}
    tidy(results, loaded.name, done)
    failures = 0 if retry_failed else sum(item.state == "failed" for item in planned)
    where = escape(str(results / loaded.name))
    console.print(f"{escape(loaded.title)}\n{len(planned)} runs, {len(done)} recorded already in {where}")
    cells = [item.cell for item in planned if item.state == "to do" or (item.state == "failed" and retry_failed)]
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
    )
    try:
        tally = launch(cells, setting, workers, Display(console))
    except KeyboardInterrupt:
        console.print(
            f"stopped; finished runs are recorded in {where}, the others have saved where they were. "
            "The same command goes on with them."
        )
        raise typer.Exit(130) from None
    elsewhere = f", {tally.elsewhere} run by another launcher" if tally.elsewhere else ""
    stopped = f", {tally.stopped} stopped (the same command goes on with them)" if tally.stopped else ""
    console.print(f"{tally.finished} runs finished, {tally.failed} failed{stopped}{elsewhere}; records in {where}")
    if failures:
        console.print(f"{failures} runs failed before and were left alone: --retry-failed runs them again")
    if tally.failed or failures:
        console.print(f"see: vitinit status {escape(grid)}")
    if tally.failed or failures or tally.stopped:
        raise typer.Exit(1)


@app.command()
def status(
    grid: GridArgument,
    seeds: SeedsOption = None,
    only: OnlyOption = None,
    data_dir: DataOption = None,
    results: ResultsOption = LOCAL,
) -> None:
    """Count what is done, failed, skipped and still to do, by row and dataset."""
    planned, contents, loaded = _planned(grid, seeds, only, None, data_dir, results)
    states = ("done", "failed", "skip", "to do")
    table = Table(title=escape(loaded.title))
    for heading in ("row", "dataset", *states, "top-1 (last epoch)"):
        table.add_column(heading, justify="left" if heading in ("row", "dataset") else "right")
    groups: dict[tuple[str, str], list[Planned]] = {}
    for item in planned:
        groups.setdefault((item.cell.row, item.cell.spec.dataset.label), []).append(item)
    for (row, dataset), items in groups.items():
        top1 = [contents.done[i.cell.spec.run_id].top1 for i in items if i.state == "done"]
        counts = [str(sum(item.state == state for item in items) or "") for state in states]
        mean = f"{sum(top1) / len(top1):.2f}% (n={len(top1)})" if top1 else ""
        table.add_row(escape(row), escape(dataset), *counts, mean)
    console.print(table)
    for item in planned:
        if item.state == "failed":
            console.print(f"failed {item.cell.spec.run_id}, {escape(item.cell.describe())}: {escape(item.reason)}")
    _print_reasons(planned, contents)


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
            console.print(f"[bold]{escape(name)}[/bold] ({cls.kind}): {escape((cls.__doc__ or '').splitlines()[0])}")
            for field, info in cls.model_fields.items():
                console.print(f"    {field} = {escape(str(info.get_default(call_default_factory=True)))}")
    elif kind == "datasets":
        folder = datasets.data_dir(None)
        for name in datasets.NAMES:
            if name == "folder":
                console.print("folder:PATH  any folder of images, one subfolder a class")
            else:
                reason = datasets.unavailable(grid.resolve_dataset({"name": name}), folder)
                console.print(f"{name}  {escape(reason) if reason else 'available'}")
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
            console.print(f"{name}  {len(loaded.cells)} runs  {escape(loaded.title)}")


@data_app.command("get")
def data_get(
    name: Annotated[str, typer.Argument(help="cifar10, cifar100 or svhn")], data_dir: DataOption = None
) -> None:
    """Download a dataset and check its md5 sums."""
    from benchmark import datasets

    folder = datasets.data_dir(data_dir)
    datasets.download(name, folder)
    console.print(f"{escape(name)} is in {escape(str(folder))}")


def _planned(
    grid: str,
    seeds: str | None,
    only: list[str] | None,
    limit: int | None,
    data_dir: Path | None,
    results: Path,
    retry_failed: bool = False,
) -> tuple[list[Planned], Contents, Grid]:
    from benchmark import datasets
    from benchmark import grid as grids
    from runners.plan import plan as plan_grid

    loaded = grids.load(grid, _seeds(seeds))
    planned, contents = plan_grid(loaded, Store(results), datasets.data_dir(data_dir))
    kept = [item for item in planned if all(_matches(item.cell, condition) for condition in only or ())]
    if planned and not kept:
        raise VitinitError(f"--only {' --only '.join(only or ())}: no run of grid {grid!r} matches")
    if limit is not None:
        wanted = ("to do", "failed") if retry_failed else ("to do",)
        to_do = [item for item in kept if item.state in wanted]
        kept = [item for item in kept if item.state not in wanted] + to_do[:limit]
    return kept, contents, loaded


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
        "id": spec.run_id,
    }
    key, separator, pattern = condition.partition("=")
    if not separator:
        raise VitinitError(f"--only {condition!r}: write KEY=PATTERN; keys: {', '.join(values)}")
    if key not in values:
        raise unknown_name("key of --only", key, values)
    # the brackets of "cifar10[5000]" are meant literally, and the bare name means the dataset at any size
    value, pattern = values[key].lower(), pattern.lower().replace("[", "[[]")
    return fnmatch.fnmatchcase(value, pattern) or (key == "dataset" and value.partition("[")[0] == pattern)


def _print_plan(grid: Grid, planned: list[Planned], contents: Contents) -> None:
    table = Table(title=escape(grid.title))
    for heading in ("run", "row", "dataset", "seed", "epochs", "state"):
        table.add_column(heading, justify="right" if heading in ("seed", "epochs") else "left")
    for item in planned:
        spec = item.cell.spec
        table.add_row(
            spec.run_id,
            escape(item.cell.row),
            escape(spec.dataset.label),
            str(spec.seed),
            str(spec.recipe.epochs),
            item.state + (f": {escape(item.reason)}" if item.state == "failed" else ""),
        )
    console.print(table)
    counts = {state: sum(item.state == state for item in planned) for state in ("done", "failed", "skip", "to do")}
    console.print(f"{len(planned)} runs: " + ", ".join(f"{count} {state}" for state, count in counts.items() if count))
    _print_reasons(planned, contents)


def _print_reasons(planned: list[Planned], contents: Contents) -> None:
    for dataset, reason in {p.cell.spec.dataset.label: p.reason for p in planned if p.state == "skip"}.items():
        console.print(f"skip {escape(dataset)}: {escape(reason)}")
    for problem in contents.problems:
        console.print(f"not a record, left alone: {escape(problem)}")


def main() -> None:
    """Entry point: one line and exit code 2 for anything the user can mend."""
    try:
        app()
    except VitinitError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
