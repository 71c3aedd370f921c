"""Execute the planned runs of a study: an executor carries them out, a display hears of it, each leaves a record."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from vitinit.benchmark.grids.schema import Cell
from vitinit.benchmark.records.record import RunRecord
from vitinit.benchmark.records.store import Store
from vitinit.initializers.errors import os_errors
from vitinit.runners.basics.setting import End, Setting, Unfinished
from vitinit.runners.basics.stop import Stop
from vitinit.runners.one_run import claims
from vitinit.runners.one_run.outcome import failure, final_outcome
from vitinit.runners.terminal.display import Display


class Executor(Protocol):
    """Place where runs are carried out: `inline.Inline`, `local.Local` or `cluster.Followed`."""

    def ends(self, cells: list[Cell], setting: Setting, display: Display, stop: Stop) -> Generator[End, None, None]:
        """Carry runs out, tell the display what they say on the way, and yield how each ended.

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
    elsewhere: int = 0
    """Another launcher was carrying them out."""

    @property
    def failed(self) -> int:
        """Number of failures."""
        return len(self.failures)

    @property
    def exit_code(self) -> int:
        """Return 1 where a run has failed, now or before, or was stopped; else 0."""
        return int(bool(self.failures or self.stopped))


def execute(
    cells: list[Cell],
    setting: Setting,
    executor: Executor,
    display: Display,
    stop: Stop | None = None,
) -> Tally:
    """Carry out runs, each to its record. Runs of other launchers are left to them, unless they come free.

    Args:
        cells: the runs.
        setting: where and how.
        executor: carries them out.
        display: told what happens.
        stop: a request that counts besides the signals.

    Raises:
        VitinitError: the results folder cannot be written.
        KeyboardInterrupt: on Ctrl-C, SIGTERM, SIGUSR2 or SIGHUP; runs in progress have saved where they were.
    """
    check_writable(setting.root / setting.study)
    stop, tally = stop or Stop(), Tally()
    with display:
        display.begin(cells)
        while cells:
            taken: dict[str, End] = {}
            with contextlib.closing(executor.ends(cells, setting, display, stop)) as ends:
                for end in ends:
                    if end.status == "elsewhere":
                        display.put_off(end.run_id, end.reason)
                        taken[end.run_id] = end
                        continue
                    display.end(end)
                    tally.finished += end.status == "done"
                    tally.failures += [end.run_id] if end.status == "failed" else []
                    tally.stopped += end.status == "stopped"
            cells = [] if stop.reason else came_free([cell for cell in cells if cell.run_id in taken], setting)
            for run_id in taken.keys() - {cell.run_id for cell in cells}:
                display.end(taken[run_id])
                tally.elsewhere += 1
    return tally


def came_free(cells: list[Cell], setting: Setting) -> list[Cell]:
    """Return the runs that other launchers had and have not ended."""
    undecided = [cell for cell in cells if not final_outcome(cell, setting)]
    return [cell for cell in undecided if not claims.live(claims.folder(setting.root, setting.study, cell.run_id))]


def record_failure(cell: Cell, setting: Setting, error: str, message: str) -> End:
    """Record that a run has failed, unless it is recorded already, or another launcher has it."""
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
