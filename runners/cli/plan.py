"""Commands of `vitinit` on the runs of a grid: `plan` and `status`. Imports no torch."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vitinit.benchmark.metrics.registry import metric_label
from vitinit.benchmark.records.store import Contents, Store
from vitinit.initializers.errors import count
from vitinit.runners.basics.machine import default_device
from vitinit.runners.launching.choose import load_grid, planned_of
from vitinit.runners.launching.estimate import estimate
from vitinit.runners.launching.plan import STATES, Planned
from vitinit.runners.launching.words import counts, details, print_plan
from vitinit.runners.options import (
    LOCAL,
    DataOption,
    GridArgument,
    OnlyOption,
    ResultsOption,
    SeedsOption,
    SetOption,
    console,
    print_table,
)

if TYPE_CHECKING:
    from vitinit.benchmark.grids.schema import Grid

LOOK_S = 5.0
"""Seconds between two looks with `--watch`."""


def plan(
    grid: GridArgument,
    seeds: SeedsOption = None,
    only: OnlyOption = None,
    fixed: SetOption = None,
    data_dir: DataOption = None,
    results: ResultsOption = LOCAL,
) -> None:
    """Show every run of a grid and its state: recorded, live, skipped, to do. Nothing is written."""
    loaded = load_grid(grid, seeds, fixed)
    planned, contents = planned_of(loaded, Store(results), only, data_dir)
    print_plan(loaded, planned, contents)
    _print_hours(planned, results / loaded.name)
    _print_next(grid, planned, results, any((seeds, only, fixed, data_dir)))


def status(
    grid: GridArgument,
    seeds: SeedsOption = None,
    only: OnlyOption = None,
    fixed: SetOption = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Again with every change, until nothing is live, queued or to do.")
    ] = False,
    data_dir: DataOption = None,
    results: ResultsOption = LOCAL,
) -> None:
    """Count what is done, live, failed, skipped and still to do, by row and dataset."""
    store, loaded, said = Store(results), load_grid(grid, seeds, fixed), ""
    with suppress(KeyboardInterrupt):
        while True:
            planned, contents = planned_of(loaded, store, only, data_dir, recorded=data_dir is None)
            if counts(planned) != said:
                said = counts(planned)
                _print_status(loaded, planned, contents)
            if not watch or not {"live", "queued", "to do"} & {item.state for item in planned}:
                break
            time.sleep(LOOK_S)
    _print_next(grid, planned, results, any((seeds, only, fixed, data_dir)))


def _print_status(grid: Grid, planned: list[Planned], contents: Contents) -> None:
    console.print(grid.title)
    console.print(counts(planned))
    states = [state for state in STATES if any(item.state == state for item in planned)]
    metrics = {metric_label(contents.done[p.cell.run_id].last.metric) for p in planned if p.state == "done"}
    measured = " or ".join(sorted(metrics, reverse=True)) or metric_label("top1")
    groups: dict[tuple[str, str], list[Planned]] = {}
    for item in planned:
        groups.setdefault(item.cell.place, []).append(item)
    rows = []
    for place, items in groups.items():
        number = Counter(item.state for item in items)
        last = [contents.done[item.cell.run_id].last for item in items if item.state == "done"]
        scores = [row.score for row in last if row.score is not None]
        mean = f"{sum(scores) / len(scores):.2f}% (n={len(scores)})" if scores else ""
        rows.append((*place, *(str(number[state] or "") for state in states), mean))
    headings = "row", "dataset", *states, f"{measured} (last epoch)"
    print_table(headings, rows, right=headings[2:])
    for line in details(planned, contents):
        console.print(line)


def _print_hours(planned: list[Planned], folder: Path) -> None:
    """Say how long the runs without a record take here, where records of this machine tell it."""
    from vitinit.runners.basics.environment import device_name

    left = [item.cell for item in planned if item.state != "done" and not item.cell.misfit]
    if left and folder.is_dir():
        device = default_device()
        seconds, machine = estimate(left, [folder], device, device_name(device))
        if seconds:
            missing = len(left) - len(seconds)
            without = f", without {count(missing, 'run')} unlike them" if missing else ""
            hours = sum(seconds.values()) / 3600
            console.print(f"{hours:.2f} hours, one run at a time, by records of {machine}{without}")


def _print_next(grid: str, planned: list[Planned], results: Path, narrowed: bool) -> None:
    """Say which command a user wants next; not where options have narrowed the plan: they would belong to it."""
    if results.absolute() != LOCAL.absolute() and not results.is_dir():
        console.print(f"there is no folder {results} yet, so nothing is recorded in it", soft_wrap=True)
    states = {item.state for item in planned}
    if narrowed or results != LOCAL:
        return
    if "to do" in states:
        console.print(f"next: vitinit run {grid}")
    elif "failed" in states:
        console.print(f"next: vitinit run {grid} --retry-failed")
    elif states == {"done"}:
        console.print(f"next: python -m vitinit.analysis.tables --study {Path(grid).stem}", soft_wrap=True)
