"""Commands of `vitinit` on the runs of a grid: `plan` and `status`. Imports no torch."""

from __future__ import annotations

import time
from collections import Counter
from typing import Annotated

import typer

from vitinit.benchmark.datasets.load import data_dir as data_folder
from vitinit.benchmark.grids.schema import Grid
from vitinit.benchmark.records.store import Store
from vitinit.runners.launching.choose import load_grid, seen
from vitinit.runners.launching.estimate import estimate
from vitinit.runners.launching.watch import STATES, View
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

WATCH_S = 10.0
"""Seconds between two looks of `status --watch`."""


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
    view = seen(loaded, Store(results), only, data_dir)
    print_plan(loaded, view, data_folder(data_dir))
    left = [item.cell for item in view.planned if item.state != "done" and not item.cell.misfit]
    if left and view.contents.done and (needed := estimate(left, view.contents.done.values())):
        console.print(needed)


def status(
    grid: GridArgument,
    seeds: SeedsOption = None,
    only: OnlyOption = None,
    fixed: SetOption = None,
    data_dir: DataOption = None,
    results: ResultsOption = LOCAL,
    watch: Annotated[bool, typer.Option("--watch", help="Again every ten seconds, until no worker is left.")] = False,
) -> None:
    """Count what is done, live, failed, skipped and still to do, by row and dataset."""
    loaded = load_grid(grid, seeds, fixed)
    while True:
        view = seen(loaded, Store(results), only, data_dir)
        if watch:
            console.clear()
        _print_status(loaded, view)
        if not watch or not (view.jobs.alive or view.cells("live")):
            return
        time.sleep(WATCH_S)


def _print_status(grid: Grid, view: View) -> None:
    planned = view.planned
    console.print(grid.title)
    console.print(counts(planned))
    states = [state for state in STATES if any(item.state == state for item in planned)]
    number = Counter((item.cell.place, item.state) for item in planned)
    places = dict.fromkeys(item.cell.place for item in planned)
    rows = [(*place, *(str(number[place, state] or "") for state in states)) for place in places]
    print_table(("row", "dataset", *states), rows, right=states)
    for line in details(view):
        console.print(line)
