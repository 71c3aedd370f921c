"""A plan in words: its runs, and lines on what needs a sentence. Imports no torch."""

from __future__ import annotations

import re
from collections import Counter
from contextlib import suppress
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING

from vitinit.benchmark.models.named import NamedModel
from vitinit.benchmark.records.store import Contents
from vitinit.benchmark.terminal import Terminal, aligned
from vitinit.initializers.errors import count, plain

if TYPE_CHECKING:
    from vitinit.benchmark.grids.schema import Grid
    from vitinit.benchmark.spec import InitializerSpec
    from vitinit.runners.launching.plan import Planned

SHOWN = 8
"""So many reasons why runs wait are listed."""


def print_plan(grid: Grid, planned: list[Planned], contents: Contents, console: Terminal) -> None:
    """The counts, then a line for each run; labels fold on a terminal that is too narrow, and elsewhere nothing."""
    rows = [("run", "row", "dataset", "seed", "epochs", "state")]
    for item in planned:
        spec = item.cell.spec
        rows.append((item.cell.run_id, *item.cell.place, str(spec.seed), str(spec.recipe.epochs), item.state))
    heading, *lines = aligned(rows, right=(3, 4), room=console.room)
    console.print(grid.title)
    console.print(counts(planned))
    for line in heading.splitlines():
        console.print(line, style="bold")
    print(
        "\n".join(_with_reason(line, item, console) for line, item in zip(lines, planned, strict=True)),
        file=console.file,
    )
    for line in left_out(planned):
        console.print(line, style="yellow")
    for line in details(planned, contents):
        console.print(line)


def _with_reason(line: str, item: Planned, console: Terminal) -> str:
    """The line of a run and why it is as it is, on lines of its own on a terminal."""
    if not item.reason or item.state not in ("queued", "failed", "to do"):
        return line
    reason = plain(item.reason)
    if not console.room:
        return f"{line}: {reason}"
    return "\n".join([line, *wrap(reason, max(console.width, 20), initial_indent="  ", subsequent_indent="  ")])


def counts(planned: list[Planned]) -> str:
    """Number of runs, and of those in each state."""
    from vitinit.runners.launching.plan import STATES

    counts = Counter(item.state for item in planned)
    return f"{count(len(planned), 'run')}: " + ", ".join(f"{counts[each]} {each}" for each in STATES if counts[each])


def details(planned: list[Planned], contents: Contents) -> list[str]:
    """Lines on what needs a sentence: who runs what, which dataset is missing, which file is no record."""
    lines = [f"live {p.cell.run_id}, {p.cell.describe()}: {p.reason}" for p in planned if p.state == "live"]
    for state in ("queued", "to do"):
        reasons = Counter(p.reason for p in planned if p.state == state and p.reason)
        lines += [f"{state}, {count(number, 'run')}: {reason}" for reason, number in reasons.most_common(SHOWN)]
        if len(reasons) > SHOWN:
            lines.append(f"{state}: and {count(len(reasons) - SHOWN, 'more reason')}; see: vitinit plan")
    lines += dict.fromkeys(f"skip {p.skipped}: {p.reason}" for p in planned if p.state == "skip")
    lines += recorded_otherwise(planned, contents)
    lines += not_records(planned, contents)
    return lines


def not_records(planned: list[Planned], contents: Contents) -> list[str]:
    """A line for each file that is no record, and what will become of it."""
    again = {item.cell.run_id for item in planned if item.state in ("to do", "failed")}
    lines = []
    for problem in contents.problems:
        found = re.search(r"/([0-9a-f]{16})(\.failed|\.skipped)?\.json: ", problem)
        becomes = "renamed when its run is carried out again" if found and found[1] in again else "left alone"
        if problem in contents.unreadable:
            lines.append(f"no run begins before this can be read, for it may be a record: {problem}")
        else:
            lines.append(f"not a record, {becomes}: {problem}")
    return lines


def recorded_otherwise(planned: list[Planned], contents: Contents) -> list[str]:
    """A line for each row that is recorded under another label, and for each initialiser whose file was another."""
    from vitinit.runners.launching.plan import labels

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
        shown = ", ".join(runs[:SHOWN]) + (f" and {len(runs) - SHOWN} more" if len(runs) > SHOWN else "")
        lines.append(
            f"{count(len(runs), 'run')} {'is' if len(runs) == 1 else 'are'} done with other code of {name} than is "
            f"here: vitinit run GRID --force RUN_ID ..., or give it another name ({shown})"
        )
    return lines


def left_out(planned: list[Planned]) -> list[str]:
    """Lines for each model by name, and for each folder of images: that `val` is its test split, what else it holds."""
    return [*_models(planned), *_folders(planned)]


def _models(planned: list[Planned]) -> list[str]:
    """A line for each model by name: its size, and what fits it."""
    bases: dict[NamedModel, list[InitializerSpec]] = {}
    for item in planned:
        spec = item.cell.spec
        if isinstance(spec.model, NamedModel):
            bases.setdefault(spec.model, []).append(spec.base)
    if not bases:
        return []
    from vitinit.benchmark.grids.fitting import summary

    return [summary(model, each) for model, each in bases.items()]


def _folders(planned: list[Planned]) -> list[str]:
    folders = dict.fromkeys(path for item in planned if (path := item.cell.spec.dataset.path))
    if not folders:
        return []
    from vitinit.benchmark.datasets.folder import held_out
    from vitinit.benchmark.image_files.images import IMAGE_FORMATS, passed_over

    lines = []
    for folder in folders:
        with suppress(OSError):  # what cannot be listed is refused when it is read
            if held_out(Path(folder)) == "val":
                lines.append(f"folder:{folder}: there is no folder test, so accuracy is measured on val")
            found = passed_over(Path(folder))
            if found:
                kinds = ", ".join(
                    f"{count} {kind}"
                    for kind, count in sorted(found.items(), key=lambda item: (-item[1], item[0]))[:SHOWN]
                )
                more = f" and {len(found) - SHOWN} other kinds" if len(found) > SHOWN else ""
                lines.append(
                    f"folder:{folder}: {sum(found.values())} left out: {kinds}{more}; images are "
                    f"{', '.join(IMAGE_FORMATS)} in the folder of their class"
                )
    return lines
