"""From a grid and a results folder to what is to become of each run. Imports no torch."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Literal, get_args

from benchmark.dataset_files import unavailable
from benchmark.grid import Cell, Grid
from benchmark.store import Outline, Store
from runners import claims, jobs

State = Literal["done", "live", "queued", "failed", "skip", "to do"]
STATES: tuple[State, ...] = get_args(State)


@dataclass(frozen=True)
class Planned:
    """A cell and what is to become of it."""

    cell: Cell
    state: State
    reason: str = ""
    """Who carries it out, where it waits, why it is skipped, what its last attempt failed of, or that it resumes."""


def plan(grid: Grid, store: Store, data_dir: Path) -> tuple[list[Planned], Outline]:
    """What each run of a grid needs; nothing is written.

    A run is `done` when it is recorded, else `live` when a launcher is carrying it out right now, else `queued` when it
    waits in a job of a cluster, else `skip` when its dataset is not here, else `failed` when its last attempt failed,
    else `to do`.

    Raises:
        SlurmError: runs were handed to a cluster, and it does not answer.
    """
    # Before the records are read: a run that ends in between is then found done, never to do.
    unfinished = _unfinished(claims.folder(store.root, grid.name, "any").parent)
    owners = {run_id: owner for run_id, folder in unfinished.items() if (owner := claims.live(folder))}
    handed = jobs.handed(store.root, grid.name)
    queued = jobs.queued(handed)
    contents = store.outline(grid.name)
    missing = cache(lambda spec: unavailable(spec, data_dir))

    def planned(cell: Cell) -> Planned:
        run_id = cell.run_id
        if run_id in contents.done:
            return Planned(cell, "done")
        if run_id in owners:
            return Planned(cell, "live", owners[run_id].describe())
        if run_id in queued:
            return Planned(cell, "queued", jobs.describe(handed[run_id], queued[run_id]))
        if reason := missing(cell.spec.dataset):
            return Planned(cell, "skip", reason)
        if failed := contents.failed.get(run_id):
            return Planned(cell, "failed", f"{failed.error}: {failed.message}")
        resumes = run_id in unfinished and any(unfinished[run_id].glob("*.ckpt"))
        return Planned(cell, "to do", "stopped, resumes from its checkpoint" if resumes else "")

    found = [planned(cell) for cell in grid.cells]
    ended = jobs.ended(handed, {item.cell.run_id for item in found if item.state == "to do"})
    return [_with_end(item, ended) for item in found], contents


def _with_end(item: Planned, ended: dict[str, str]) -> Planned:
    """With how its last job ended, if it had one and is to be done still."""
    reasons = [ended.get(item.cell.run_id, ""), item.reason]
    return replace(item, reason="; ".join(filter(None, reasons))) if reasons[0] else item


def _unfinished(folder: Path) -> dict[str, Path]:
    """The folders of unfinished runs by run_id: listed once, as most runs of a large grid have none."""
    try:
        with os.scandir(folder) as entries:
            return {entry.name: Path(entry.path) for entry in entries if entry.is_dir()}
    except OSError:  # nothing was ever started here, or the last run has just been finished
        return {}
