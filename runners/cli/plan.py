"""Commands of `vitinit` on the runs of a grid: `plan` and `status`. Imports no torch."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path

from vitinit.benchmark.metrics.registry import metric_label
from vitinit.benchmark.records.store import Store
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
    left = [item.cell for item in planned if item.state != "done" and not item.cell.misfit]
    if (
        left
        and (results / loaded.name).is_dir()
        and (seconds := estimate(left, [results / loaded.name], default_device()))
    ):
        without = f", without {count(missing, 'run')} unlike them" if (missing := len(left) - len(seconds)) else ""
        hours = sum(seconds.values()) / 3600
        console.print(f"{hours:.2f} hours, one run at a time, by records of this machine{without}")
    _print_next(grid, planned, results, any((seeds, only, fixed, data_dir)))


def status(
    grid: GridArgument,
    seeds: SeedsOption = None,
    only: OnlyOption = None,
    fixed: SetOption = None,
    data_dir: DataOption = None,
    results: ResultsOption = LOCAL,
) -> None:
    """Count what is done, live, failed, skipped and still to do, by row and dataset."""
    loaded = load_grid(grid, seeds, fixed)
    planned, contents = planned_of(loaded, Store(results), only, data_dir, recorded=data_dir is None)
    console.print(loaded.title)
    console.print(counts(planned))
    states = [state for state in STATES if any(item.state == state for item in planned)]
    last = {item.cell.run_id: contents.done[item.cell.run_id].last for item in planned if item.state == "done"}
    measured = " or ".join(sorted({metric_label(row.metric) for row in last.values()}, reverse=True))
    groups: dict[tuple[str, str], list[Planned]] = defaultdict(list)
    for item in planned:
        groups[item.cell.place].append(item)
    rows = []
    for place, items in groups.items():
        number = Counter(item.state for item in items)
        scores = [row.score for item in items if (row := last.get(item.cell.run_id)) and row.score is not None]
        mean = f"{sum(scores) / len(scores):.2f}% (n={len(scores)})" if scores else ""
        rows.append((*place, *(str(number[state] or "") for state in states), mean))
    headings = "row", "dataset", *states, f"{measured or metric_label('top1')} (last epoch)"
    print_table(headings, rows, right=headings[2:])
    for line in details(planned, contents):
        console.print(line)
    _print_next(grid, planned, results, any((seeds, only, fixed, data_dir)))


def _print_next(grid: str, planned: list[Planned], results: Path, narrowed: bool) -> None:
    """Say which command a user wants next; not where options have narrowed the plan: they would belong to it."""
    if results != LOCAL and not results.is_dir():
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
