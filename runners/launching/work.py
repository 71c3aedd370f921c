"""Workers that pull: each takes the next run that nobody has recorded or is carrying out, until none is left."""

from __future__ import annotations

import contextlib
import math
import tempfile
import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Protocol

from vitinit.benchmark.datasets.registry import unavailable
from vitinit.benchmark.grids.schema import Cell
from vitinit.benchmark.records.record import RunRecord
from vitinit.benchmark.records.store import Store
from vitinit.initializers.errors import os_errors
from vitinit.runners.basics.setting import End, Setting, Unfinished
from vitinit.runners.basics.stop import Stop
from vitinit.runners.one_run import claims
from vitinit.runners.one_run.outcome import failure, final_outcome
from vitinit.runners.terminal.display import Display


@dataclass(frozen=True)
class Work:
    """Runs of a study, in the order in which they are taken, and how they are carried out; picklable."""

    cells: tuple[Cell, ...]
    setting: Setting
    slots: int = 1
    """Number of runs that a worker carries out at once."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Time of runs by run_id, where records tell."""
    limit_s: float = math.inf
    """Time that a job has until it is told to stop."""


def in_order(cells: list[Cell], seconds: dict[str, float]) -> tuple[Cell, ...]:
    """Sort runs seed by seed, so that a row that cannot run fails early; within a seed the longest first.

    The last two seeds count as one, as a long run that begins at the very end would keep all workers waiting.
    """
    seeds = sorted({cell.spec.seed for cell in cells})
    position = {seed: min(number, len(seeds) - 2) for number, seed in enumerate(seeds)}
    return tuple(sorted(cells, key=lambda cell: (position[cell.spec.seed], -seconds.get(cell.run_id, math.inf))))


class Queue:
    """The runs as one worker takes them.

    Args:
        work: all of them.
        start: position of the run that this worker looks at first.
    """

    def __init__(self, work: Work, start: int = 0) -> None:
        self.work, self._cells = work, (*work.cells[start:], *work.cells[:start])
        self.taken: dict[str, set[str]] = {}
        """Runs that this worker took, with the checkpoints that they had then."""
        self.ended: set[str] = set()
        """Runs that are known to be recorded, by whomever."""
        self.declined = False
        """True if a run was left alone because the rest of this job is too short for it."""
        self._began = time.monotonic()
        self._missing = cache(lambda dataset: unavailable(dataset, work.setting.data_dir))

    def candidates(self) -> Iterator[Cell]:
        """Yield the runs that have no record and no live owner, and whose data are here."""
        setting = self.work.setting
        recorded, begun = (_names(setting.root / setting.study / name) for name in ("", "unfinished"))
        for cell in self._cells:
            run_id = cell.run_id
            if run_id in self.ended:
                continue
            if recorded & {f"{run_id}.json", f"{run_id}.failed.json"} and final_outcome(cell, setting):
                self.ended.add(run_id)
                continue
            owned = run_id in begun and claims.live(self.folder(run_id))
            if not owned and not self._missing(cell.spec.dataset):
                yield cell

    def next(self) -> Cell | None:
        """Take the next run; None where there is none now.

        Near the limit of a job, a run that a fresh job has time for is left to one.
        """
        spent_s, limit_s = time.monotonic() - self._began, self.work.limit_s
        for cell in self.candidates():
            if limit_s - spent_s < self.work.seconds.get(cell.run_id, 0) <= limit_s:
                self.declined = True
            elif cell.run_id not in self.taken:
                self.taken[cell.run_id] = self._checkpoints(cell.run_id)
                return cell
        return None

    def stopped(self) -> list[Cell]:
        """Return the runs that this worker took and that have no record."""
        return [cell for cell in self._cells if cell.run_id in self.taken.keys() - self.ended]

    def progressed(self) -> bool:
        """Return True if a run that this worker took has ended, or has been saved at a later step."""
        saved = (self._checkpoints(run_id) - before for run_id, before in self.taken.items())
        return bool(self.ended & self.taken.keys()) or any(saved)

    def folder(self, run_id: str) -> Path:
        """Return where an unfinished run keeps its claims and checkpoints."""
        return claims.folder(self.work.setting.root, self.work.setting.study, run_id)

    def _checkpoints(self, run_id: str) -> set[str]:
        """Return the names of a run's checkpoints, which hold the step."""
        return {path.name for path in self.folder(run_id).glob("step-*.ckpt")}


class Executor(Protocol):
    """Place where runs are carried out: `inline.Inline`, `local.Local` or `cluster.Followed`."""

    def ends(self, queue: Queue, display: Display, stop: Stop) -> Generator[End, None, None]:
        """Carry runs of a queue out, tell the display what they say on the way, and yield how each ended.

        Raises:
            VitinitError: the results folder cannot be written, or nothing can be started.
            KeyboardInterrupt: a stop was asked for; runs in progress have saved where they were.
        """
        ...


@dataclass
class Tally:
    """Counts of how the runs of one launch ended."""

    finished: int = 0
    failures: list[str] = field(default_factory=list)
    """The run_ids of those that failed, after a launch those of before too."""
    stopped: int = 0
    """Asked to stop, one by one; a stop of the whole launch is a KeyboardInterrupt."""

    @property
    def failed(self) -> int:
        """Number of failures."""
        return len(self.failures)

    @property
    def exit_code(self) -> int:
        """Return 1 where a run has failed, now or before, or was stopped; else 0."""
        return int(bool(self.failures or self.stopped))


def work(queue: Queue, executor: Executor, display: Display, stop: Stop | None = None) -> Tally:
    """Carry out runs, each to its record, until none is left that others do not have.

    Args:
        queue: the runs.
        executor: carries them out.
        display: told what happens.
        stop: a request that counts besides the signals.

    Raises:
        VitinitError: the results folder cannot be written.
        KeyboardInterrupt: on Ctrl-C, SIGTERM, SIGUSR2 or SIGHUP; runs in progress have saved where they were.
    """
    setting, tally = queue.work.setting, Tally()
    check_writable(setting.root / setting.study)
    with display:
        display.begin(queue.work.cells)
        with contextlib.closing(executor.ends(queue, display, stop or Stop())) as ends:
            for end in ends:
                if end.status == "elsewhere":  # another was faster
                    del queue.taken[end.run_id]
                    continue
                display.end(end)
                if end.status == "stopped":
                    tally.stopped += 1
                    continue
                queue.ended.add(end.run_id)
                tally.finished += end.status == "done"
                tally.failures += [end.run_id] if end.status == "failed" else []
    return tally


def record_failure(cell: Cell, setting: Setting, error: str, message: str) -> End:
    """Record that a run has failed, unless it is recorded already, or another worker has it."""
    try:
        with claims.held(claims.folder(setting.root, setting.study, cell.run_id), Stop()) as claim:
            recorded = final_outcome(cell, setting)
            if isinstance(recorded, RunRecord):
                claim.finish()
            if recorded:
                return recorded
            failed = failure(cell, setting, error, message)
            Store(setting.root).write(failed)
            return failed
    except claims.Taken as taken:
        return Unfinished(cell.run_id, "elsewhere", str(taken))


def check_writable(folder: Path) -> None:
    """Find out before hours of training, not after.

    Raises:
        VitinitError: records cannot be written there.
    """
    with os_errors(f"cannot write to the results folder {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"0" * 2**16)


def _names(folder: Path) -> set[str]:
    try:
        return {path.name for path in folder.iterdir()}
    except FileNotFoundError:
        return set()
