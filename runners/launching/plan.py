"""From a grid and a results folder to what is to become of each run. Imports no torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal, get_args

from vitinit.benchmark.datasets.registry import unavailable
from vitinit.benchmark.grids.schema import Cell, Grid
from vitinit.benchmark.records.store import Contents, Store
from vitinit.benchmark.spec import DatasetSpec
from vitinit.runners.launching import jobs
from vitinit.runners.one_run import claims

State = Literal["done", "live", "queued", "failed", "skip", "to do"]
STATES: tuple[State, ...] = get_args(State)


@dataclass(frozen=True)
class Planned:
    """A cell and what is to become of it."""

    cell: Cell
    state: State
    reason: str = ""
    """Executor, queue, cause of a skip or failure, or the checkpoint to resume from."""


def plan(
    grid: Grid,
    store: Store,
    data_dir: Path,
    missing: Callable[[DatasetSpec], str | None] | None = None,
) -> tuple[list[Planned], Contents]:
    """Return what each run of a grid needs; nothing is written.

    A run is `done` when it is recorded, else `live` when a launcher is carrying it out right now, else `queued` when it
    waits in a job of a cluster, else `skip` when its initialiser does not fit its model or its dataset is not here,
    else `failed` when its last attempt failed, else `to do`.

    Args:
        grid: the runs.
        store: where records are.
        data_dir: where datasets lie.
        missing: why the data of a run that is to be carried out cannot be used; it may fetch them first.
    """
    # Claims before records: a run that ends in between is then found done, never to do.
    folders = {folder.name: folder for folder in claims.folder(store.root, grid.name, "any").parent.glob("*")}
    owners = {run_id: owner for run_id, folder in folders.items() if (owner := claims.live(folder))}
    look = jobs.look(store.root, grid.name)
    handed, over = jobs.handed(look), {job.job_id for job in look if not job.state and not job.silence}
    contents = store.read(grid.name)
    ended = cache(lambda: jobs.ended(handed.values()))
    why_not = cache(missing or (lambda spec: unavailable(spec, data_dir)))

    def planned(cell: Cell) -> Planned:
        run_id = cell.run_id
        if run_id in contents.done:
            return Planned(cell, "done")
        if run_id in owners and owners[run_id].job not in over:
            return Planned(cell, "live", claims.described(folders[run_id], owners[run_id]))
        job, failed = handed.get(run_id), contents.failed.get(run_id)
        if job and not (failed and failed.written >= job.written):
            if job.state:
                return Planned(cell, "queued", job.describe())
            if job.silence:  # not to know is no reason to hand it out again
                gone = f"if that cluster is gone for good, remove {jobs.folder(store.root, grid.name)}"
                return Planned(cell, "queued", f"was handed out as job {job.job_id}; {job.silence} ({gone})")
        if reason := cell.misfit or why_not(cell.spec.dataset):
            return Planned(cell, "skip", reason)
        if failed:
            return Planned(cell, "failed", f"{failed.error}: {failed.message}")
        said = [ended()[job.job_id]] if job else []
        if run_id in folders and any(folders[run_id].glob("*.ckpt")):
            said.append("stopped, resumes from its checkpoint")
        return Planned(cell, "to do", "; ".join(said))

    return [planned(cell) for cell in grid.cells], contents
