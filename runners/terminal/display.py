"""Live progress in the terminal: runs done, epoch, score, time left; a line per finished run."""

from __future__ import annotations

import contextlib
import time

from rich.progress import BarColumn, Progress, TextColumn

from vitinit.benchmark.grids.schema import Cell
from vitinit.benchmark.records.record import FailureRecord, RunRecord
from vitinit.benchmark.terminal import Terminal, duration
from vitinit.initializers.errors import count, printable
from vitinit.runners.basics.setting import Event, Unfinished


class Display:
    """A context manager; tell it what a run says, and what ends."""

    def __init__(self, console: Terminal) -> None:
        self.console = console
        columns = (TextColumn(f"{{task.{name}}}", markup=False) for name in ("fields[done]", "fields[said]"))
        self._progress = Progress(next(columns), BarColumn(), next(columns), console=console)
        self._share: dict[str, float] = {}
        """Progress of each run, 0 to 1."""
        self._before: dict[str, float] = {}
        """Progress of each run when it began here: more than 0 where it was resumed."""
        self._failed_trackers: set[str] = set()
        self._ended = 0

    def __enter__(self) -> Display:
        self._start = time.monotonic()
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def say(self, text: str, style: str = "", whole: bool = False) -> None:
        """Print a line, `whole` where it is not to be folded.

        That it cannot be written, as the disk is full or nobody reads, is no reason to end a run.
        """
        with contextlib.suppress(OSError):
            self.console.print(text, style=style, soft_wrap=whole)

    def begin(self, cells: list[Cell]) -> None:
        """Announce all runs."""
        self._cells = {cell.run_id: cell for cell in cells}
        self._all = self._progress.add_task("", total=1.0, done="", said="", visible=bool(cells))
        self._update()

    def event(self, event: Event) -> None:
        """A run says something."""
        run_id, row, cell = event.run_id, event.epoch, self._cells[event.run_id]
        if event.trouble:
            if event.tracker not in self._failed_trackers:
                self._failed_trackers |= {event.tracker} - {""}
                self._say_of(run_id, event.trouble, "yellow")
        elif event.resumed:
            self._say_of(run_id, f"goes on from {event.resumed}")
        elif row:
            epochs = cell.spec.recipe.epochs
            self._before.setdefault(run_id, (row.epoch - 1) / epochs)
            self._share[run_id] = row.epoch / epochs
            said = f"epoch {row.epoch}/{epochs}", row.scored(), f"{row.images_per_s or 0:,.0f} images/s"
            self._update(f"{cell.describe()}: {', '.join(filter(None, said))}")

    def put_off(self, run_id: str, why: str) -> None:
        """Another launcher carries a run out: it starts again here when it comes free, or its `end` follows."""
        self._say_of(run_id, why)

    def end(self, outcome: RunRecord | FailureRecord | Unfinished) -> None:
        """A run is recorded, or has ended here without a record."""
        run_id = outcome.run_id
        if isinstance(outcome, FailureRecord):
            self._say_of(run_id, f"failed, {outcome.error}: {outcome.message}", "red")
        elif isinstance(outcome, RunRecord):
            epochs = count(len(outcome.history), "epoch")
            self._say_of(run_id, f"{outcome.last.scored(2)}, {epochs}, {outcome.seconds:.0f} s")
        elif outcome.status == "stopped":
            self._say_of(run_id, f"stopped, {outcome.reason}")
        if outcome.status != "stopped":
            self._share[run_id] = 1.0
            self._ended += 1
        self._update()

    def _say_of(self, run_id: str, text: str, style: str = "") -> None:
        self.say(f"{self._cells[run_id].describe()}: {text}  {run_id[:8]}", style)

    def _update(self, said: str = "") -> None:
        total, done = len(self._cells), sum(self._share.values())
        before = sum(self._before.get(run_id, 0.0) for run_id in self._share)
        text = f"{self._ended}/{total} done"
        if done > before:
            text += f", {duration((time.monotonic() - self._start) * (total - done) / (done - before))} left"
        self._progress.update(self._all, completed=done / max(1, total), done=text, said=printable(said))
