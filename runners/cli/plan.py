"""Commands of `vitinit` on the runs of a grid: `plan` and `status`. Imports no torch."""

from __future__ import annotations

from collections import Counter

from vitinit.benchmark.datasets.load import data_dir as data_folder
from vitinit.benchmark.records.store import Store
from vitinit.runners.launching.choose import load_grid, planned_of
from vitinit.runners.launching.estimate import estimate
from vitinit.runners.launching.plan import STATES
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
    print_plan(loaded, planned, contents, data_folder(data_dir))
    left = [item.cell for item in planned if item.state != "done" and not item.cell.misfit]
    if left and contents.done and (time := estimate(left, [results / loaded.name])):
        console.print(time)


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
    planned, contents = planned_of(loaded, Store(results), only, data_dir)
    console.print(loaded.title)
    console.print(counts(planned))
    states = [state for state in STATES if any(item.state == state for item in planned)]
    number = Counter((item.cell.place, item.state) for item in planned)
    places = dict.fromkeys(item.cell.place for item in planned)
    rows = [(*place, *(str(number[place, state] or "") for state in states)) for place in places]
    print_table(("row", "dataset", *states), rows, right=states)
    for line in details(planned, contents):
        console.print(line)
