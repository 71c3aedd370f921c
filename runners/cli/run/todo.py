"""Runs of a grid, and what is to become of them: what `vitinit run` works on."""

from __future__ import annotations

import shlex
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from vitinit.benchmark.records.store import Layout, Outline, Store
from vitinit.initializers.errors import count
from vitinit.runners.cli.options import LOCAL, console
from vitinit.runners.cli.plan import left_out, not_records, planned_of, recorded_otherwise
from vitinit.runners.launching import jobs
from vitinit.runners.launching.plan import labels
from vitinit.runners.launching.tidying import begin_anew

if TYPE_CHECKING:
    from vitinit.benchmark.grids.schema import Cell, Grid
    from vitinit.runners.basics.setting import Setting
    from vitinit.runners.launching.plan import Planned, State


@dataclass(frozen=True)
class Todo:
    """Runs of a grid, and what is to become of them."""

    loaded: Grid
    setting: Setting
    planned: list[Planned]
    contents: Outline
    retry_failed: bool
    forced: dict[str, Cell] = field(default_factory=dict)
    """Those that `--force` names, by prefix; their records stand until `begin_anew`."""

    @property
    def cells(self) -> list[Cell]:
        """Those to be carried out now."""
        return [item.cell for item in self.planned if item.state in wanted(self.retry_failed)]

    @property
    def layout(self) -> Layout:
        """The grid's, with the labels under which its runs are recorded."""
        recorded, layout = labels(self.planned, self.contents), self.loaded.layout
        rows = [recorded.get(row, row) for row in layout.rows]
        contrasts = [(recorded.get(ours, ours), recorded.get(theirs, theirs)) for ours, theirs in layout.contrasts]
        return layout.model_copy(update={"rows": list(dict.fromkeys(rows)), "contrasts": contrasts})

    @property
    def results_option(self) -> str:
        """The option that another command needs to find these records."""
        root = self.setting.root
        return "" if root == LOCAL.absolute() else f" --results {shlex.quote(str(root))}"

    def now(self) -> Todo:
        """The same runs, as they are now."""
        chosen = {item.cell.run_id for item in self.planned}
        planned, contents = planned_of(self.loaded, Store(self.setting.root), None, self.setting.data_dir)
        setting = replace(self.setting, retried=retried(contents)) if self.retry_failed else self.setting
        kept = [item for item in planned if item.cell.run_id in chosen]
        return replace(self, setting=setting, planned=to_begin_anew(kept, self.forced), contents=contents)

    def begin_anew(self) -> Todo:
        """Put the forced runs back to their start; to be called when nothing is left that could refuse them.

        Raises:
            VitinitError: another launcher is carrying one out, or a file cannot be renamed.
        """
        begin_anew(self.forced, Store(self.setting.root), self.setting.study)
        return replace(self, forced={})


def wanted(retry_failed: bool) -> tuple[State, ...]:
    """The states of runs that are carried out."""
    return ("to do", "failed") if retry_failed else ("to do",)


def to_begin_anew(planned: list[Planned], forced: dict[str, Cell]) -> list[Planned]:
    """The same runs, those that are forced as if they had no record; what waits in a job begins anew there.

    Of a job of which the cluster says nothing the user knows more than we: a run of it that is forced begins here.
    """
    anew = {cell.run_id for cell in forced.values()}
    return [
        replace(item, state="to do", reason="", silent=False)
        if item.cell.run_id in anew and (item.state != "queued" or item.silent)
        else item
        for item in planned
    ]


def retried(contents: Outline) -> dict[str, str]:
    """When each failure was recorded, by run_id."""
    return {run_id: failed.written for run_id, failed in contents.failed.items()}


def say_left_alone(failures: int) -> str:
    """What is said of runs that failed before, where --retry-failed is not given."""
    return f"{count(failures, 'run')} failed before and left alone; to run again: --retry-failed"


def say_nothing_to_do(todo: Todo) -> None:
    """What has become of the runs where none is to be carried out, and the command that shows those recorded."""
    states = Counter(item.state for item in todo.planned)
    words: dict[State, str] = {
        "done": "recorded",
        "live": "being carried out",
        "skip": "skipped",
        "queued": "in jobs",
        "failed": "failed",
    }
    found = [f"{states[state]} {text}" for state, text in words.items() if states[state]]
    every = "all " if len(todo.planned) > 1 and len(found) == 1 else ""
    console.print(f"nothing to do: {every}{', '.join(found)}")
    if states["done"]:
        command = f"python -m vitinit.analysis.tables --study {todo.setting.study}{todo.results_option}"
        console.print(f"next: {command}", soft_wrap=True)


def announce(todo: Todo) -> None:
    """Say what is left out, what is skipped and what is recorded already."""
    for line in not_records(todo.planned, todo.contents):
        console.print(line, style="yellow")
    for line in dict.fromkeys(f"skipping {p.skipped}: {p.reason}" for p in todo.planned if p.state == "skip"):
        console.print(line, style="yellow")
    for line in left_out(todo.planned):
        console.print(line, style="yellow")
    if silent := [item for item in todo.planned if item.silent]:
        folder = jobs.folder(todo.setting.root, todo.setting.study)
        console.print(
            f"{count(len(silent), 'run')} left to a cluster that does not answer ({silent[0].reason}). "
            f"If it is gone for good: remove {folder}, or --force RUN_ID",
            style="yellow",
        )
    done = sum(item.state == "done" for item in todo.planned)
    where = str(todo.setting.root / todo.loaded.name)
    console.print(todo.loaded.title)
    console.print(f"{count(len(todo.planned), 'run')}, {done} recorded already in {where}")
    for line in recorded_otherwise(todo.planned, todo.contents):
        console.print(line, style="yellow")
