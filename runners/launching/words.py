"""A plan in words: its runs, and lines on what needs a sentence. Imports no torch."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from vitinit.benchmark.datasets import registry
from vitinit.benchmark.datasets.folder import in_both
from vitinit.benchmark.datasets.load import load
from vitinit.benchmark.image_files.images import stamp
from vitinit.initializers.errors import count, os_errors
from vitinit.runners.launching.watch import STATES, Planned, View
from vitinit.runners.options import console, print_table

if TYPE_CHECKING:
    from vitinit.benchmark.grids.schema import Grid
    from vitinit.benchmark.spec import RunSpec

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
    planned, contents, lines = view.planned, view.contents, list[str]()
    opened: dict[tuple[object, ...], str] = {}

    def checksum(spec: RunSpec) -> str:
        from vitinit.initializers.streams import derive

        draw = derive(spec.seed, "train_draw") if spec.dataset.train_draw == "seed" else 0
        images = spec.dataset, spec.model.image_size, data_dir, draw, spec.recipe.crops
        if images not in opened:
            opened[images] = load(*images).checksum
        return opened[images]

    for spec in dict.fromkeys(item.cell.spec.dataset for item in planned):
        name = f"{spec.name}:{spec.path}"
        with os_errors(f"dataset {name}"):
            files, unread = registry.get(spec.name).own_files(spec)
            now = stamp(files, spec.root) if files else ""
            shared = in_both(spec) if files and spec.name == "folder" else 0
        if unread:
            number = f"{len(unread)} of {count(len(files) + len(unread), 'file')}"
            endings = Counter(file.suffix.lower() or "no ending" for file in unread).most_common()
            what = ", ".join(f"{number} {ending}" for ending, number in endings)
            lines.append(f"{name}: {number} {'is' if len(unread) == 1 else 'are'} not read: {what}; as {unread[0]}")
        if shared:
            lines.append(f"{name}: {shared} of its {spec.evaluate_on} images are in train, too")
        changed = 0
        for cell in (item.cell for item in planned if now and item.state == "done"):
            recorded = contents.done[cell.run_id].dataset
            if cell.spec.dataset == spec and recorded.stamp != now:
                changed += recorded.checksum != checksum(cell.spec)
        if changed:
            lines.append(
                f"{count(changed, 'run')} done with other images than {name} has now: put these back, or remove the "
                "records"
            )
    return list(dict.fromkeys(lines))
