"""A plan in words: its runs, and lines on what needs a sentence. Imports no torch."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from vitinit.benchmark.models.named import NamedModel
from vitinit.benchmark.records.store import Contents
from vitinit.initializers.errors import count
from vitinit.runners.launching.plan import STATES, Planned, labels
from vitinit.runners.options import console, print_table

if TYPE_CHECKING:
    from vitinit.benchmark.grids.schema import Grid
    from vitinit.benchmark.spec import InitializerSpec

SHOWN = 8
"""Number of lines of a kind that are listed."""


def print_plan(grid: Grid, planned: list[Planned], contents: Contents) -> None:
    """The counts, a line for each run, and what needs a sentence; on a terminal a run_id by its first digits."""
    digits = 8 if console.room else 16
    rows = []
    for item in planned:
        spec = item.cell.spec
        numbers = str(spec.seed), str(spec.recipe.epochs)
        rows.append((*item.cell.place, *numbers, item.state, item.cell.run_id[:digits]))
    console.print(grid.title)
    console.print(counts(planned))
    print_table(("row", "dataset", "seed", "epochs", "state", "run"), rows, right=("seed", "epochs"))
    for line in [*left_out(planned), *details(planned, contents)]:
        console.print(line)


def counts(planned: list[Planned]) -> str:
    """Number of runs, and of those in each state."""
    number = Counter(item.state for item in planned)
    return f"{count(len(planned), 'run')}: " + ", ".join(f"{number[each]} {each}" for each in STATES if number[each])


def details(planned: list[Planned], contents: Contents) -> list[str]:
    """Lines on what needs a sentence: who runs what, what failed, what is missing, which file is no record."""
    lines = []
    for state in ("live", "failed"):
        some = [f"{state} {item.cell.run_id[:8]}, {item}" for item in planned if item.state == state]
        lines += some[:SHOWN] + ([f"{state}: and {len(some) - SHOWN} more"] if some[SHOWN:] else [])
    for state in ("queued", "to do"):
        reasons = Counter(item.reason for item in planned if item.state == state and item.reason)
        lines += [f"{state}, {count(number, 'run')}: {reason}" for reason, number in reasons.most_common(SHOWN)]
    lines += dict.fromkeys(f"skip {item.skipped}: {item.reason}" for item in planned if item.state == "skip")
    return [*lines, *recorded_otherwise(planned, contents), *not_records(planned, contents)]


def not_records(planned: list[Planned], contents: Contents) -> list[str]:
    """A line for each file that is no record, and what will become of it."""
    again = {item.cell.run_id for item in planned if item.state in ("to do", "failed")}
    lines = []
    for problem in contents.problems:
        name = Path(problem.partition(".json")[0]).name
        becomes = "renamed when its run is repeated" if name[:16] in again else "left alone"
        if problem in contents.unreadable:
            lines.append(f"no run begins before this can be read, for it may be a record: {problem}")
        else:
            lines.append(f"not a record, {becomes}: {problem}")
    return lines


def recorded_otherwise(planned: list[Planned], contents: Contents) -> list[str]:
    """A line for each row that is recorded under another label, and for each initialiser whose file was another."""
    changed: dict[str, list[str]] = {}
    for item in planned:
        if item.state == "done":
            for name, source in contents.done[item.cell.run_id].sources.items():
                if source != item.cell.sources.get(name, source):
                    changed.setdefault(name, []).append(item.cell.run_id)
    lines = [
        f"row {row!r} is recorded as {label!r}, and tables call it so: a label is part of a record"
        for row, label in labels(planned, contents).items()
    ]
    for name, runs in changed.items():
        more = " ..." if runs[SHOWN:] else ""
        lines.append(
            f"{count(len(runs), 'run')} done with other code of {name} than is here: vitinit run GRID --force RUN_ID "
            f"..., or give it another name ({', '.join(runs[:SHOWN])}{more})"
        )
    return lines


def left_out(planned: list[Planned]) -> list[str]:
    """Lines for each model by name, and for each folder of images: that `val` is its test split, what else it holds."""
    bases: dict[NamedModel, list[InitializerSpec]] = {}
    folders: dict[str, None] = {}
    for item in planned:
        spec = item.cell.spec
        if isinstance(spec.model, NamedModel):
            bases.setdefault(spec.model, []).append(spec.base)
        if spec.dataset.path:
            folders[spec.dataset.path] = None
    lines = []
    if bases:  # it imports torch
        from vitinit.benchmark.grids.fitting import summary

        lines += [summary(model, each) for model, each in bases.items()]
    for folder in filter(Path.is_dir, map(Path, folders)):
        from vitinit.benchmark.datasets.folder import held_out
        from vitinit.benchmark.image_files.images import IMAGE_FORMATS, passed_over

        if held_out(folder) == "val":
            lines.append(f"folder:{folder}: there is no folder test, so accuracy is measured on val")
        if found := passed_over(folder):
            kinds = ", ".join(f"{number} {kind}" for kind, number in Counter(found).most_common(SHOWN))
            formats = ", ".join(IMAGE_FORMATS)
            lines.append(
                f"folder:{folder}: {sum(found.values())} left out: {kinds}; images are {formats} in the folder of "
                "their class"
            )
    return lines
