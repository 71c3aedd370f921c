"""Live progress in the terminal: runs done, epoch, score, time left; a line per finished run, or a row and dataset."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from types import TracebackType

from rich.progress import BarColumn, Progress, TaskID, TextColumn

from vitinit.benchmark.grids.schema import Cell
from vitinit.benchmark.metrics.registry import metric_label
from vitinit.benchmark.records.epoch import EpochRow
from vitinit.benchmark.records.record import FailureRecord, RunRecord
from vitinit.benchmark.terminal import Terminal, duration
from vitinit.initializers.errors import count, printable
from vitinit.runners.basics.setting import Event, Unfinished


def together(place: tuple[str, str], last: list[EpochRow]) -> str:
    """The last epochs of the runs of one row and column, in a line."""
    mean = sum(row.score or 0.0 for row in last) / len(last)
    of = f"{'mean of ' * (len(last) > 1)}{count(len(last), 'seed')}"
    return f"{', '.join(place)}: {metric_label(last[0].metric)} {mean:.2f}% ({of})"


class Display:
    """A context manager; tell it what starts, what a run says, and what ends. Without `bar` it prints lines only."""

    def __init__(self, console: Terminal, brief: bool = False, bar: bool = True) -> None:
        self.console = console
        self._brief = brief
        """Finished runs of one row and dataset are one line, once the last of them has ended."""
        self._finished: dict[tuple[str, str], list[RunRecord]] = {}
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.fields[text]}", markup=False),
            console=console,
            transient=brief,
            disable=not bar,
        )
        self._tasks: dict[str, TaskID] = {}
        self._cells: dict[str, Cell] = {}
        self._share: dict[str, float] = {}
        """Progress of each run, 0 to 1."""
        self._resumed: dict[str, float] = {}
        """Progress of each run when it began here: more than 0 where it was resumed."""
        self._failed_trackers: set[str] = set()
        self._scored: dict[str, str] = {}
        """Last known accuracy of each run."""

    def __enter__(self) -> Display:
        self._start = time.monotonic()
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._tasks.values():
            self._progress.remove_task(task)
        self._progress.stop()

    def bar(self, shown: bool) -> None:
        """Show progress bars where the terminal can, or lines only."""
        self._progress.disable = not shown

    def say(self, text: str, style: str = "", whole: bool = False) -> None:
        """Print a line, `whole` where it is not to be folded.

        That it cannot be written, as the disk is full or nobody reads, is no reason to end a run.
        """
        with contextlib.suppress(OSError):
            self.console.print(text, style=style, soft_wrap=whole)

    def begin(self, cells: list[Cell], work: dict[str, float]) -> None:
        """Announce all runs, with how long each takes by run_id, in any unit."""
        self._cells = {cell.spec.run_id: cell for cell in cells}
        self._work = work
        self._ended = 0
        self._open = Counter(cell.place for cell in cells)
        """Runs that have not ended, by row and column."""
        self._all = self._progress.add_task("all runs", total=1.0, text="", visible=bool(cells))
        self._update()

    def start(self, cell: Cell) -> None:
        """A run starts."""
        self._tasks[cell.spec.run_id] = self._progress.add_task(
            printable(cell.describe()), total=cell.spec.recipe.epochs, text="starting"
        )

    def event(self, event: Event) -> None:
        """A run says something."""
        task, cell = self._tasks[event.run_id], self._cells[event.run_id]
        epochs = cell.spec.recipe.epochs
        if event.trouble:
            if event.tracker in self._failed_trackers:
                return
            self._failed_trackers |= {event.tracker} - {""}
            self.say(f"{event.run_id}  {event.trouble}", "yellow")
            return
        if event.resumed:
            self.say(f"{event.run_id}  goes on from {event.resumed}")
            return
        if event.epoch is None:
            self._progress.update(task, text=f"initialising, step {event.init_done}/{event.init_total}")
            return
        row = event.epoch
        if row.scored():
            self._scored[event.run_id] = f", {row.scored()}"
        scored = self._scored.get(event.run_id, "")
        text = f"epoch {row.epoch}/{epochs}{scored}, {row.images_per_s or 0:,.0f} images/s"
        self._progress.update(task, completed=row.epoch, text=text)
        self._resumed.setdefault(event.run_id, (row.epoch - 1) / epochs)
        self._share[event.run_id] = row.epoch / epochs
        self._update()

    def put_off(self, run_id: str, why: str) -> None:
        """A run is over here for now. It has not ended: it starts again, or its `end` follows."""
        self._progress.remove_task(self._tasks.pop(run_id))
        self.say(f"{run_id}  {self._cells[run_id].describe()}: {why}")

    def end(self, outcome: RunRecord | FailureRecord | Unfinished) -> None:
        """A run is recorded, or has ended here without a record."""
        task = self._tasks.pop(outcome.run_id, None)
        if task is not None:
            self._progress.remove_task(task)
            self._say_end(outcome)  # of one that was put off, it was said then
        if outcome.status not in ("stopped", "crowded"):
            self._share[outcome.run_id] = 1.0
            self._ended += 1
        self._say_finished(self._cells[outcome.run_id].place)
        self._update()

    def _say_end(self, outcome: RunRecord | FailureRecord | Unfinished) -> None:
        label = self._cells[outcome.run_id].describe()
        if outcome.status == "done" and self._brief:
            self._finished.setdefault(self._cells[outcome.run_id].place, []).append(outcome)
        elif outcome.status == "done":
            self.say(
                f"{outcome.run_id}  {label}: {outcome.last.scored(2)} after {count(len(outcome.history), 'epoch')}, "
                f"{outcome.seconds:.0f} s"
            )
        elif outcome.status == "failed":
            self.say(f"{outcome.run_id}  {label}: failed, {outcome.error}: {outcome.message}", "red")
        elif outcome.status == "elsewhere":
            self.say(f"{outcome.run_id}  {label}: {outcome.reason}")
        else:
            self.say(f"{outcome.run_id}  {label}: stopped, {outcome.reason}")

    def _say_finished(self, place: tuple[str, str]) -> None:
        """One line for the finished runs of a row and column, with the last that ends."""
        self._open[place] -= 1
        runs = self._finished.get(place)
        if self._open[place] or not runs:
            return
        seconds = sum(run.seconds for run in runs)
        self.say(f"{together(place, [run.last for run in runs])}, {seconds:.0f} s")

    def _update(self) -> None:
        total = sum(self._work.values())
        done = sum(self._work[run_id] * share for run_id, share in self._share.items())
        share = done / total if total else 1.0
        before = sum(self._work[run_id] * self._resumed.get(run_id, 0.0) for run_id in self._share)
        left = (time.monotonic() - self._start) * (total - done) / (done - before) if done > before else None
        text = f"{self._ended}/{len(self._cells)} done" + ("" if left is None else f", {duration(left)} left")
        self._progress.update(self._all, completed=share, text=text)
