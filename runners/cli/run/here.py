"""What `vitinit run` does on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from benchmark.datasets.registry import unavailable
from runners.cli.options import console
from runners.cli.run.todo import Todo, announce
from runners.terminal.markup import safe

if TYPE_CHECKING:
    from runners.training.distributed import World


def run_here(todo: Todo, workers: int, grid: str, world: World | None, brief: bool = False) -> None:
    """Carry the runs out here; `brief`: with one line for the finished runs of a row and dataset.

    Raises:
        Exit: with 1 when runs failed or were stopped, with 130 on Ctrl-C.
    """
    from runners.launching.launch import launch
    from runners.terminal.display import Display

    announce(todo)
    setting = todo.setting
    failures = 0 if todo.retry_failed else sum(item.state == "failed" for item in todo.planned)
    where = safe(str(setting.root / setting.study))
    # runs of other launchers too: one whose owner has gone comes free
    live = [item.cell for item in todo.planned if item.state == "live"]
    cells = todo.cells + [cell for cell in live if unavailable(cell.spec.dataset, setting.data_dir) is None]
    try:
        tally = launch(cells, setting, workers, Display(console, brief), world, layout=todo.loaded.layout)
    except KeyboardInterrupt:
        console.print(
            f"stopped; finished runs are recorded in {where}. The same command goes on with the others from where they "
            "have saved."
        )
        raise typer.Exit(130) from None
    elsewhere = f", {tally.elsewhere} run by another launcher" if tally.elsewhere else ""
    stopped = f", {tally.stopped} stopped (the same command goes on with them)" if tally.stopped else ""
    console.print(f"{tally.finished} runs finished, {tally.failed} failed{stopped}{elsewhere}; records in {where}")
    queued = sum(item.state == "queued" for item in todo.planned)
    if queued:
        console.print(f"{queued} runs are in jobs of the cluster and were left to it")
    if failures:
        console.print(f"{failures} runs failed before and were left alone: --retry-failed runs them again")
    if tally.failed or failures:
        console.print(f"see: vitinit status {safe(grid)}")
    if tally.failed or failures or tally.stopped:
        raise typer.Exit(1)
