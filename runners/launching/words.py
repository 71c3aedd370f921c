"""A plan in words: its runs, and lines on what needs a sentence. Imports no torch."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from vitinit.benchmark.datasets.folder import in_both
from vitinit.benchmark.records.store import Contents
from vitinit.initializers.errors import count
from vitinit.runners.launching.plan import STATES, Planned
from vitinit.runners.options import console, print_table

if TYPE_CHECKING:
    from vitinit.benchmark.grids.schema import Grid

SHOWN = 8
"""Number of lines of a kind that are listed."""


def print_plan(grid: Grid, planned: list[Planned], contents: Contents) -> None:
    """The counts, a line for each run, and what needs a sentence; on a terminal a run_id by its first digits."""
    digits = 8 if console.room else 16
    rows = [
        (*cell.place, str(cell.spec.seed), str(cell.spec.recipe.epochs), item.state, cell.run_id[:digits])
        for item in planned
        for cell in [item.cell]
    ]
    console.print(grid.title)
    console.print(counts(planned))
    print_table(("row", "dataset", "seed", "epochs", "state", "run"), rows, right=("seed", "epochs"))
    for line in (*details(planned, contents), *shared_images(planned)):
        console.print(line)


def counts(planned: list[Planned]) -> str:
    """Number of runs, and of those in each state."""
    number = Counter(item.state for item in planned)
    return f"{count(len(planned), 'run')}: " + ", ".join(f"{number[each]} {each}" for each in STATES if number[each])


def details(planned: list[Planned], contents: Contents) -> list[str]:
    """Lines on what needs a sentence: who runs what, what failed, what is missing, which file is no record."""
    lines: list[str] = []
    for state in ("live", "failed"):
        some = [
            f"{state} {item.cell.run_id[:8]}, {item.cell.describe()}: {item.reason}"
            for item in planned
            if item.state == state
        ]
        lines += some[:SHOWN] + [f"{state}: and {len(some) - SHOWN} more"] * (len(some) > SHOWN)
    for state in ("queued", "to do"):
        reasons = Counter(item.reason for item in planned if item.state == state and item.reason)
        lines += [f"{state}, {count(number, 'run')}: {reason}" for reason, number in reasons.most_common(SHOWN)]
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


def shared_images(planned: list[Planned]) -> list[str]:
    """Lines on folders whose test images are trained on. Files are read for it: `status` leaves that out."""
    lines = []
    for root in {item.cell.spec.dataset.path for item in planned if item.cell.spec.dataset.name == "folder"}:
        if shared := in_both(Path(str(root))):
            lines.append(f"folder:{root}: {shared} of its test images are in train, too")
    return lines
