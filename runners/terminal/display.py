"""Live progress in a terminal or a notebook: runs done, epoch, score, time left; a line per finished run."""

import contextlib
import time
from collections.abc import Iterable
from typing import Any

from rich import progress as bars
from rich.table import Column

from vitinit.benchmark.grids.schema import Cell
from vitinit.benchmark.records.record import FailureRecord, RunRecord
from vitinit.benchmark.terminal import Terminal, duration
from vitinit.initializers.errors import count, printable
from vitinit.runners.basics.setting import Unfinished
from vitinit.runners.one_run.claims import Progress


class Display:
    """A context manager; tell it what a run says, and what ends."""

    def __init__(self, console: Terminal) -> None:
        self.console = console
        whole, rest = Column(no_wrap=True), Column(no_wrap=True, ratio=1)
        done = bars.TextColumn("{task.fields[done]}", markup=False, table_column=whole)
        said = bars.TextColumn("{task.fields[said]}", markup=False, table_column=rest)
        bar, notebook = bars.BarColumn(16, table_column=whole), console.is_jupyter
        self._bar = bars.Progress(done, bar, said, console=console, disable=notebook)
        self._cell_output: Any = None
        """The line of a notebook's output that is updated: rich would need ipywidgets."""
        self._share: dict[str, float] = {}
        """Progress of each run, 0 to 1."""
        self._before: dict[str, float] = {}
        """Progress of each run when it began here: more than 0 where it was resumed."""
        self._failed_trackers: set[str] = set()
        self._ended = 0

    def __enter__(self) -> "Display":
        self._start = time.monotonic()
        self._bar.start()
        if self.console.is_jupyter:
            from IPython.display import display

            self._cell_output = display({"text/plain": ""}, raw=True, display_id=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def say(self, text: str, style: str = "", whole: bool = False) -> None:
        """Print a line, `whole` where it is not to be folded.

        That it cannot be written, as the disk is full or nobody reads, is no reason to end a run.
        """
        with contextlib.suppress(OSError):
            self.console.print(text, style=style, soft_wrap=whole)

    def begin(self, cells: Iterable[Cell]) -> None:
        """Announce all runs."""
        self._cells = {cell.run_id: cell for cell in cells}
        self._all = self._bar.add_task("", total=1.0, done="", said="", visible=bool(cells))
        self._update()

    def event(self, run_id: str, event: Progress | str) -> None:
        """A run says something, or has come so far."""
        if isinstance(event, str):
            topic = event.partition(":")[0]
            if topic not in self._failed_trackers:
                self._failed_trackers |= {topic} if topic.startswith("tracker ") else set()
                self._say_of(run_id, event, "yellow")
        elif event.epoch:
            self._before.setdefault(run_id, (event.epoch - 1) / event.epochs)
            self._share[run_id] = event.epoch / event.epochs
            self._update(f"{self._cells[run_id].describe()}: {event.describe()}")

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
        self._bar.update(self._all, completed=done / max(1, total), done=text, said=printable(said))
        if self._cell_output:
            self._cell_output.update({"text/plain": f"{text}  {printable(said)}"}, raw=True)
