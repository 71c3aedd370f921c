"""From a grid and a results folder to the state of each run. Imports no torch."""

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
from vitinit.runners.launching.jobs import Jobs
from vitinit.runners.one_run import claims
from vitinit.runners.one_run.claims import Owner

State = Literal["done", "live", "failed", "skip", "to do"]
STATES: tuple[State, ...] = get_args(State)


@dataclass(frozen=True)
class Planned:
    """A cell and what is to become of it."""

    cell: Cell
    state: State
    reason: str = ""
    """Who carries it out, cause of a skip or failure, or the checkpoint to resume from."""


@dataclass(frozen=True)
class View:
    """What is seen of a study."""

    planned: list[Planned]
    contents: Contents
    owners: dict[str, Owner]
    """Who carries runs out, or did until they were stopped, by run_id."""
    jobs: Jobs

    def cells(self, *states: State) -> list[Cell]:
        """Return the runs in one of these states."""
        return [item.cell for item in self.planned if item.state in states]


def look(
    grid: Grid,
    store: Store,
    data_dir: Path,
    missing: Callable[[DatasetSpec], str | None] | None = None,
) -> View:
    """Return what each run of a grid needs; nothing is written.

    A run is `done` when it is recorded, else `live` when a worker is carrying it out right now, else `skip` when its
    initialiser does not fit its model or its dataset is not here, else `failed` when its last attempt failed, else
    `to do`.

    Args:
        grid: the runs.
        store: where records are.
        data_dir: where datasets lie.
        missing: why the data of a run that is to be carried out cannot be used; it may fetch them first.
    """
    # Claims before records: a run that ends in between is then found done, never to do.
    folders = {folder.name: folder for folder in claims.folder(store.root, grid.name, "any").parent.glob("*")}
    owners = {run_id: owner for run_id, folder in folders.items() if (owner := claims.last(folder))}
    live = {run_id for run_id in owners if claims.live(folders[run_id])}
    handed = jobs.look(store.root, grid.name)
    over = {job_id for job_id in {owner.job for owner in owners.values()} if job_id and handed.over(job_id)}
    contents = store.read(grid.name)
    ended = cache(lambda: jobs.ended(handed, over))
    why_not = cache(missing or (lambda spec: unavailable(spec, data_dir)))

    def planned(cell: Cell) -> Planned:
        run_id, failed = cell.run_id, contents.failed.get(cell.run_id)
        if run_id in contents.done:
            return Planned(cell, "done")
        if run_id in live and owners[run_id].job not in over:
            return Planned(cell, "live", claims.described(folders[run_id], owners[run_id]))
        if reason := cell.misfit or why_not(cell.spec.dataset):
            return Planned(cell, "skip", reason)
        if failed:
            return Planned(cell, "failed", f"{failed.error}: {failed.message}")
        said = []
        if run_id in owners and (job_id := owners[run_id].job) in over:
            said.append(ended()[str(job_id)])
        if run_id in folders and any(folders[run_id].glob("*.ckpt")):
            said.append("stopped, resumes from its checkpoint")
        return Planned(cell, "to do", "; ".join(said))

    return View([planned(cell) for cell in grid.cells], contents, owners, handed)
