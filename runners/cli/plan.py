"""Commands of `vitinit` on the runs of a grid: `plan`, `status` and `run`. Imports no torch."""

from __future__ import annotations

import inspect
import time
from collections import Counter
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from vitinit.benchmark.records.store import Store
from vitinit.initializers.errors import VitinitError, count
from vitinit.runners.launching import jobs
from vitinit.runners.launching.launch import launch
from vitinit.runners.launching.watch import STATES, choose, counts, details, estimate, load_grid, look, print_plan
from vitinit.runners.options import (
    LOCAL,
    DataOption,
    GridArgument,
    OnlyOption,
    ResultsOption,
    RunCommand,
    SeedsOption,
    SetOption,
    console,
    print_table,
)
from vitinit.runners.terminal.display import Display
from vitinit.slurm import jobs as slurm_jobs

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
    view = look(choose(load_grid(grid, seeds, fixed), only), Store(results), data_dir)
    print_plan(view)
    left = [cell for cell, state, _ in view.planned if state != "done" and not cell.misfit]
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
    chosen = choose(load_grid(grid, seeds, fixed), only)
    while True:
        view = look(chosen, Store(results), data_dir)
        if watch:
            console.clear()
        console.print(chosen.title)
        console.print(counts(view))
        states = [state for state in STATES if view.cells(state)]
        number = Counter((cell.place, state) for cell, state, _ in view.planned)
        rows = [
            (*place, *(str(number[place, state] or "") for state in states))
            for place in dict.fromkeys(cell.place for cell in chosen.cells)
        ]
        print_table(("row", "dataset", *states), rows, right=states)
        for line in details(view):
            console.print(line)
        if not watch or not (view.jobs.alive or view.cells("live")):
            return
        time.sleep(WATCH_S)


def run(**given: Any) -> None:
    """Run every experiment of a grid that has no record yet. After a stop, the same command resumes.

    Exit code 1: a run has failed or was stopped; 130: Ctrl-C; 2: refused.
    """

    asked = RunCommand(**given)
    try:
        tally = launch(load_grid(asked.grid, asked.seeds, asked.fixed), asked, Display(console))
    except KeyboardInterrupt as stopped:
        console.print(str(stopped) or "stopped")
        raise typer.Exit(130) from None
    raise typer.Exit(tally.exit_code)


vars(run)["__signature__"] = inspect.signature(RunCommand, eval_str=True)
run.__annotations__ = get_type_hints(RunCommand, include_extras=True)


slurm_app = typer.Typer(help="Jobs of a cluster: cancel them.", no_args_is_help=True)


@slurm_app.callback()
def _group() -> None:
    """Keep `cancel` a command of its own, as it is the only one."""


@slurm_app.command()
def cancel(grid: GridArgument, results: ResultsOption = LOCAL) -> None:
    """Cancel all jobs of a grid. Its runs write a checkpoint, and the same `run` command resumes them."""
    study = Path(grid).stem if grid.endswith((".yaml", ".yml")) else grid
    known = jobs.look(results, study)
    if not known.submissions:
        raise VitinitError(f"no run of {study!r} in {results} was submitted to a cluster")
    if known.silence:
        raise VitinitError(f"cannot cancel jobs of {study!r}: {known.silence}")
    slurm_jobs.cancel(known.alive)
    console.print(f"cancelled {count(len(known.alive), 'job')}" if known.alive else "no job of it is left to cancel")
