"""A plan in words: its runs, and lines on what needs a sentence. Imports no torch."""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from vitinit.benchmark.datasets import registry
from vitinit.benchmark.datasets.folder import in_both
from vitinit.benchmark.datasets.load import load
from vitinit.initializers.errors import count, os_errors
from vitinit.runners.launching.watch import STATES, Planned, View
from vitinit.runners.options import console, print_table

if TYPE_CHECKING:
    from vitinit.benchmark.grids.schema import Grid
    from vitinit.benchmark.spec import DatasetSpec

SHOWN = 8
"""Number of lines of a kind that are listed."""


def print_plan(grid: Grid, view: View, data_dir: Path) -> None:
    """The counts, a line for each run, and what needs a sentence; on a terminal a run_id by its first digits."""
    digits = 8 if console.room else 16
    rows = [
        (*cell.place, str(cell.spec.seed), str(cell.spec.recipe.epochs), item.state, cell.run_id[:digits])
        for item in view.planned
        for cell in [item.cell]
    ]
    console.print(grid.title)
    console.print(counts(view.planned))
    print_table(("row", "dataset", "seed", "epochs", "state", "run"), rows, right=("seed", "epochs"))
    for line in (*details(view), *on_folders(view, data_dir)):
        console.print(line)


def counts(planned: list[Planned]) -> str:
    """Number of runs, and of those in each state."""
    number = Counter(item.state for item in planned)
    return f"{count(len(planned), 'run')}: " + ", ".join(f"{number[each]} {each}" for each in STATES if number[each])


def details(view: View) -> list[str]:
    """Lines on what needs a sentence: who runs what, what failed, what is missing, which file is no record."""
    planned, contents, lines = view.planned, view.contents, workers(view)
    for state in ("live", "failed"):
        some = [
            f"{state} {item.cell.run_id[:8]}, {item.cell.describe()}: {item.reason}"
            for item in planned
            if item.state == state
        ]
        lines += some[:SHOWN] + [f"{state}: and {len(some) - SHOWN} more"] * (len(some) > SHOWN)
    reasons = Counter(item.reason for item in planned if item.state == "to do" and item.reason)
    lines += [f"to do, {count(number, 'run')}: {reason}" for reason, number in reasons.most_common(SHOWN)]
    for item in planned:
        if item.state == "skip":
            what = ", ".join(item.cell.place) if item.cell.misfit else item.cell.spec.dataset.label
            lines.append(f"skip {what}: {item.reason}")
    changed = Counter(
        name
        for item in planned
        if item.state == "done"
        for name, source in contents.done[item.cell.run_id].sources.items()
        if source != item.cell.sources.get(name, source)
    )
    lines += [
        f"{count(number, 'run')} done with other code of {name} than is here: give it another name, or remove the "
        "records"
        for name, number in changed.items()
    ]
    return [*dict.fromkeys(lines), *(f"not a record: {problem}" for problem in contents.problems)]


def workers(view: View) -> list[str]:
    """Lines on jobs of a cluster: how many wait and run; or, where runs are left without any, where their logs are."""
    jobs, left = view.jobs, view.cells("to do")
    if jobs.silence:
        return [f"whether jobs wait or run is not known: {jobs.silence}"]
    states = Counter(
        f"{job.state.lower()} {f'on {job.nodes}' if job.nodes else f'({job.reason})'}" for job in jobs.alive.values()
    )
    if states:
        return [f"{count(number, 'job')} {state}" for state, number in states.most_common(SHOWN)]
    return [f"no job of it is left; logs: {[*jobs.submissions.values()][-1]}"] if jobs.submissions and left else []


def on_folders(view: View, data_dir: Path) -> list[str]:
    """Lines on folders of one's own: files passed over, test images that are trained on, images that have changed.

    Files are read for it: `status` leaves that out.
    """
    lines: list[str] = []

    @cache
    def checksum(dataset: DatasetSpec, size: int, crops: bool, seed: int) -> str:
        from vitinit.initializers.streams import derive

        return load(dataset, size, data_dir, derive(seed, "train_draw"), crops).checksum

    for spec in dict.fromkeys(item.cell.spec.dataset for item in view.planned):
        name, changed = f"{spec.name}:{spec.path}", 0
        with os_errors(f"dataset {name}"):
            now = registry.get(spec.name).own_files(spec)
            shared = in_both(spec) if now and spec.name == "folder" else 0
        if unread := now.get("unread"):
            lines.append(f"{name}: not read: {', '.join(f'{number} {ending}' for ending, number in unread.items())}")
        if shared:
            lines.append(f"{name}: {shared} of its {spec.evaluate_on} images are in train, too")
        for run in (item.cell.spec for item in view.planned if now and item.state == "done"):
            recorded = view.contents.done[run.run_id].dataset
            if run.dataset == spec and recorded.stamp != now["stamp"]:
                seed = run.seed if spec.train_draw == "seed" else 0
                changed += recorded.checksum != checksum(spec, run.model.image_size, run.recipe.crops, seed)
        if changed:
            runs = count(changed, "run")
            lines.append(f"{runs} done with other images than {name} has now: put these back, or remove the records")
    return list(dict.fromkeys(lines))
