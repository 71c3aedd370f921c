"""Commands of `vitinit` on the runs of a grid: `plan` and `status`, and choosing among the runs. Imports no torch."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.console import Group
from rich.styled import Styled
from rich.table import Table

from vitinit.benchmark.metrics.registry import metric_label
from vitinit.benchmark.records.store import Contents, Store
from vitinit.initializers.errors import count
from vitinit.runners.basics.machine import default_device
from vitinit.runners.launching.choose import limited, load_grid, planned_of
from vitinit.runners.launching.words import counts, details, print_plan
from vitinit.runners.options import (
    LOCAL,
    DataOption,
    GridArgument,
    LimitOption,
    OnlyOption,
    ResultsOption,
    SeedsOption,
    SetOption,
    console,
)

if TYPE_CHECKING:
    from vitinit.benchmark.grids.schema import Grid
    from vitinit.runners.launching.plan import Planned


def plan(
    grid: GridArgument,
    seeds: SeedsOption = None,
    only: OnlyOption = None,
    limit: LimitOption = None,
    fixed: SetOption = None,
    data_dir: DataOption = None,
    results: ResultsOption = LOCAL,
) -> None:
    """Show every run of a grid and its state: recorded, live, skipped, to do. Nothing is written."""
    loaded = load_grid(grid, seeds, fixed)
    planned, contents = planned_of(loaded, Store(results), only, data_dir)
    planned = limited(planned, limit, ("to do",))
    print_plan(loaded, planned, contents, console)
    for line in _hours(planned, results / loaded.name):
        console.print(line)
    for line in _without_folder(results):
        console.print(line, style="yellow", soft_wrap=True)
    for line in _next(grid, planned, seeds, only, limit, fixed, data_dir, results != LOCAL):
        console.print(line)


def status(
    grid: GridArgument,
    seeds: SeedsOption = None,
    only: OnlyOption = None,
    fixed: SetOption = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Refresh until nothing is live, queued or to do, or until Ctrl-C.")
    ] = False,
    interval: Annotated[float, typer.Option(min=0.1, help="Seconds between two looks with --watch.")] = 5.0,
    data_dir: DataOption = None,
    results: ResultsOption = LOCAL,
) -> None:
    """Count what is done, live, failed, skipped and still to do, by row and dataset."""
    from rich.live import Live

    store, loaded = Store(results), load_grid(grid, seeds, fixed)

    def look() -> tuple[list[Planned], Contents]:
        return planned_of(loaded, store, only, data_dir, recorded=data_dir is None)

    def shown() -> Group:
        following = _next(grid, planned, seeds, only, fixed, data_dir, results != LOCAL)
        after = (*_without_folder(results), *following)
        return Group(_status(loaded, planned, contents), *(Styled(line, "yellow") for line in after))

    planned, contents = look()
    if watch and not console.is_terminal:
        _watch_in_lines(look, interval)
        planned, contents = look()
    if not watch or not console.is_terminal:
        console.print(shown())
        return
    with suppress(KeyboardInterrupt), Live(shown(), console=console) as view:
        while any(item.state in ("live", "queued", "to do") for item in planned):
            time.sleep(interval)
            planned, contents = look()
            view.update(shown(), refresh=True)


def _watch_in_lines(look: Callable[[], tuple[list[Planned], Contents]], interval: float) -> None:
    """Print the time and the counts whenever these change, for a log, until nothing is left or until Ctrl-C."""
    said = ""
    with suppress(KeyboardInterrupt):
        while True:
            planned, _ = look()
            if (now := counts(planned)) != said:
                console.print(f"{time.strftime('%H:%M:%S')} {now}", soft_wrap=True)
                said = now
            if not any(item.state in ("live", "queued", "to do") for item in planned):
                return
            time.sleep(interval)


def _without_folder(results: Path) -> list[str]:
    """A line where records are looked for in a folder that is not there; none for the default, which a run makes."""
    if results.is_dir() or results.absolute() == LOCAL.absolute():
        return []
    return [f"there is no folder {results} yet, so nothing is recorded in it"]


def _hours(planned: list[Planned], folder: Path) -> list[str]:
    """Return a line on how long the runs without a record take here; none where no record of this machine tells it."""
    from vitinit.runners.basics.environment import device_name
    from vitinit.runners.launching.estimate import estimate

    left = [item.cell for item in planned if item.state != "done" and not item.cell.misfit]
    if not left or not folder.is_dir():
        return []
    device = default_device()
    seconds, machine = estimate(left, [folder], device, device_name(device))
    if not seconds:
        return []
    missing = f", without {count(len(left) - len(seconds), 'run')} unlike them" if len(seconds) < len(left) else ""
    return [f"{sum(seconds.values()) / 3600:.2f} hours, one run at a time, by records of {machine}{missing}"]


def _status(grid: Grid, planned: list[Planned], contents: Contents) -> Group:
    from vitinit.runners.launching.plan import STATES

    table = Table(title=grid.title, box=box.SIMPLE_HEAD)
    states = [state for state in STATES if any(item.state == state for item in planned)]
    metrics = {metric_label(contents.done[p.cell.run_id].last.metric) for p in planned if p.state == "done"}
    measured = " or ".join(sorted(metrics, reverse=True)) or metric_label("top1")
    for heading in ("row", "dataset", *states, f"{measured} (last epoch)"):
        table.add_column(heading, justify="left" if heading in ("row", "dataset") else "right", overflow="fold")
    groups: dict[tuple[str, str], list[Planned]] = {}
    for item in planned:
        groups.setdefault(item.cell.place, []).append(item)
    for (row, dataset), items in groups.items():
        last = [contents.done[item.cell.run_id].last for item in items if item.state == "done"]
        states_of = Counter(item.state for item in items)
        scores = [row.score for row in last if row.score is not None]
        mean = f"{sum(scores) / len(scores):.2f}% (n={len(scores)})" if scores else ""
        table.add_row(row, dataset, *(str(states_of[state] or "") for state in states), mean)
    failed = [f"failed {p.cell.run_id}, {p.cell.describe()}: {p.reason}" for p in planned if p.state == "failed"]
    return Group(counts(planned), table, *failed, *details(planned, contents))


def _next(grid: str, planned: list[Planned], *narrowed: object) -> list[str]:
    """Return a line with the command that a user wants next: what carries out what is left, else the table.

    There is none where options have `narrowed` what was planned: they would belong to the command.
    """
    if any(narrowed):
        return []
    states = {item.state for item in planned}
    if "to do" in states:
        return [f"next: vitinit run {grid}"]
    if "failed" in states:
        return [f"next: vitinit run {grid} --retry-failed"]
    return [f"next: python -m vitinit.analysis.tables --study {Path(grid).stem}"] if states == {"done"} else []
