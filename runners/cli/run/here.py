"""What `vitinit run` does on this machine."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import typer

from vitinit.benchmark.datasets.registry import unavailable
from vitinit.initializers.errors import count
from vitinit.runners.cli.options import console
from vitinit.runners.cli.run.todo import Todo, announce, say_left_alone, say_nothing_to_do

if TYPE_CHECKING:
    from vitinit.runners.training.distributed import World


SHOWN = 8
"""So many runs that failed before are listed."""


def run_here(todo: Todo, workers: int, world: World | None, brief: bool = False) -> None:
    """Carry the runs out here; `brief`: with one line for the finished runs of a row and dataset.

    Raises:
        Exit: with 1 when runs failed or were stopped, with 130 on Ctrl-C.
    """
    from vitinit.runners.launching.launch import checked_work, launch
    from vitinit.runners.terminal.display import Display

    announce(todo)
    setting = todo.setting
    states = Counter(item.state for item in todo.planned)
    failures = 0 if todo.retry_failed else states["failed"]
    if failures:
        console.print(say_left_alone(failures))
    where = str(setting.root / setting.study)
    # runs of other launchers too: one whose owner has gone comes free
    live = [item.cell for item in todo.planned if item.state == "live"]
    cells = todo.cells + [cell for cell in live if unavailable(cell.spec.dataset, setting.data_dir) is None]
    try:
        work = checked_work(cells, setting)
        todo = todo.begin_anew()
        display = Display(console, brief)
        tally = launch(cells, setting, workers, display, world, work=work, layout=todo.layout)
    except KeyboardInterrupt:
        console.print(
            f"stopped; finished runs are recorded in {where}. The same command goes on with the others from where they "
            "have saved."
        )
        raise typer.Exit(130) from None
    if not cells:
        say_nothing_to_do(todo)
        if failures:
            _say_more(todo, [])
            raise typer.Exit(1)
        return
    elsewhere = f", {tally.elsewhere} run by another launcher" if tally.elsewhere else ""
    stopped = f", {tally.stopped} stopped (the same command goes on with them)" if tally.stopped else ""
    console.print(
        f"{count(tally.finished, 'run')} finished, {tally.failed} failed{stopped}{elsewhere}; records in {where}"
    )
    if states["queued"]:
        console.print(f"{count(states['queued'], 'run')} left to jobs of the cluster")
    if tally.failures or failures:
        _say_more(todo, tally.failures)
    if tally.failed or failures or tally.stopped:
        raise typer.Exit(1)


def _say_more(todo: Todo, failed: list[str]) -> None:
    """Why the runs failed that are left alone, and the command that tells more of one that failed, now or before."""
    before = [] if todo.retry_failed else [item for item in todo.planned if item.state == "failed"]
    for item in before[:SHOWN]:
        console.print(f"failed {item.cell.run_id}, {item.cell.describe()}: {item.reason}", soft_wrap=True)
    if before[SHOWN:]:
        console.print(f"and {len(before) - SHOWN:,} more")
    run_id = [*failed, *(item.cell.run_id for item in before)][0]
    console.print(f"see: vitinit show {run_id}{todo.results_option}: the traceback", soft_wrap=True)
