"""Commands of `vitinit` on the runs of a grid: `plan` and `status`, and choosing among the runs. Imports no torch."""

from __future__ import annotations

import fnmatch
import re
import time
from collections import Counter
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.console import Group
from rich.styled import Styled
from rich.table import Table

from vitinit.benchmark.metrics.registry import metric_label
from vitinit.benchmark.models.named import NamedModel
from vitinit.benchmark.records.store import Outline, Store
from vitinit.benchmark.settings import named_fields, short
from vitinit.benchmark.terminal import aligned
from vitinit.initializers.errors import VitinitError, count, plain, unknown_name
from vitinit.runners.basics.machine import default_device
from vitinit.runners.cli.options import (
    LOCAL,
    DataOption,
    GridArgument,
    LimitOption,
    OnlyOption,
    ResultsOption,
    SeedsOption,
    SetOption,
    console,
)

if TYPE_CHECKING:
    from vitinit.benchmark.grids.schema import Cell, Grid
    from vitinit.benchmark.spec import DatasetSpec, InitializerSpec
    from vitinit.runners.launching.plan import Planned, State

MOST_NAMED = 30
"""An error names no more values than this."""
SHOWN = 8
"""So many reasons why runs wait are listed."""


def plan(
    grid: GridArgument,
    seeds: SeedsOption = None,
    only: OnlyOption = None,
    limit: LimitOption = None,
    fixed: SetOption = None,
    data_dir: DataOption = None,
    results: ResultsOption = LOCAL,
) -> None:
    """Show every run of a grid and its state: recorded, live, skipped, to do. Nothing is written."""
    loaded = load_grid(grid, seeds, fixed)
    planned, contents = planned_of(loaded, Store(results), only, data_dir)
    planned = limited(planned, limit, ("to do",))
    print_plan(loaded, planned, contents)
    for line in _hours(planned, results / loaded.name):
        console.print(line)
    for line in _without_folder(results):
        console.print(line, style="yellow", soft_wrap=True)
    for line in _next(grid, planned, seeds, only, limit, fixed, data_dir, results != LOCAL):
        console.print(line)


def status(
    grid: GridArgument,
    seeds: SeedsOption = None,
    only: OnlyOption = None,
    fixed: SetOption = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Refresh until nothing is live, queued or to do, or until Ctrl-C.")
    ] = False,
    interval: Annotated[float, typer.Option(min=0.1, help="Seconds between two looks with --watch.")] = 5.0,
    data_dir: DataOption = None,
    results: ResultsOption = LOCAL,
) -> None:
    """Count what is done, live, failed, skipped and still to do, by row and dataset."""
    from rich.live import Live

    store, loaded = Store(results), load_grid(grid, seeds, fixed)

    def look() -> tuple[list[Planned], Outline]:
        return planned_of(loaded, store, only, data_dir, recorded=data_dir is None)

    def shown() -> Group:
        following = _next(grid, planned, seeds, only, fixed, data_dir, results != LOCAL)
        after = (*_without_folder(results), *following)
        return Group(_status(loaded, planned, contents), *(Styled(line, "yellow") for line in after))

    planned, contents = look()
    if watch and not console.is_terminal:
        _watch_in_lines(look, interval)
        planned, contents = look()
    if not watch or not console.is_terminal:
        console.print(shown())
        return
    with suppress(KeyboardInterrupt), Live(shown(), console=console) as view:
        while any(item.state in ("live", "queued", "to do") for item in planned):
            time.sleep(interval)
            planned, contents = look()
            view.update(shown(), refresh=True)


def _watch_in_lines(look: Callable[[], tuple[list[Planned], Outline]], interval: float) -> None:
    """Print the time and the counts whenever these change, for a log, until nothing is left or until Ctrl-C."""
    said = ""
    with suppress(KeyboardInterrupt):
        while True:
            planned, _ = look()
            if (counts := _counts(planned)) != said:
                console.print(f"{time.strftime('%H:%M:%S')} {counts}", soft_wrap=True)
                said = counts
            if not any(item.state in ("live", "queued", "to do") for item in planned):
                return
            time.sleep(interval)


def _without_folder(results: Path) -> list[str]:
    """A line where records are looked for in a folder that is not there; none for the default, which a run makes."""
    if results.is_dir() or results.absolute() == LOCAL.absolute():
        return []
    return [f"there is no folder {results} yet, so nothing is recorded in it"]


def limited(
    planned: list[Planned], limit: int | None, states: tuple[State, ...], first: Collection[str] = ()
) -> list[Planned]:
    """Without those that `--limit` leaves for later: of the runs in these states so many stay, some run_ids first."""
    if limit is None:
        return planned
    if limit < len(first):
        raise VitinitError(f"--limit {limit}: --force names {len(first)} runs")
    to_do = [item for item in planned if item.state in states]
    to_do.sort(key=lambda item: item.cell.run_id not in first)
    return [item for item in planned if item.state not in states] + to_do[:limit]


def load_grid(grid: str, seeds: str | None, fixed: list[str] | None = None) -> Grid:
    """A grid by name or file, with what `--seeds` and `--set` say."""
    from vitinit.benchmark.grids import grid as grids

    if Path(grid).name == grid and not Path(grid).suffix and grid not in grids.names():
        own = [file for file in (f"{grid}.yaml", f"{grid}.yml") if Path(file).is_file()]
        if own or (LOCAL / grid).is_dir():
            raise VitinitError(f"unknown grid {grid!r}; did you mean {[*own, f'{grid}.yaml'][0]}?")
    return grids.load(grid, _seeds(seeds), _fixed(fixed or []))


def planned_of(
    grid: Grid,
    store: Store,
    only: list[str] | None,
    data_dir: Path | None,
    recorded: bool = False,
    missing: Callable[[DatasetSpec], str | None] | None = None,
) -> tuple[list[Planned], Outline]:
    """Plan the runs of a loaded grid that `--only` chooses; `recorded` and `missing` as in `launching.plan`."""
    from vitinit.benchmark.datasets.load import data_dir as data_folder
    from vitinit.runners.launching.plan import plan as plan_grid

    kept = [cell for cell in grid.cells if all(_matches(cell, condition) for condition in only or ())]
    if grid.cells and not kept:
        raise _nothing_matches(grid, only or [])
    return plan_grid(replace(grid, cells=kept), store, data_folder(data_dir), recorded, missing)


def _nothing_matches(grid: Grid, only: list[str]) -> VitinitError:
    for condition in only:
        if not any(_matches(cell, condition) for cell in grid.cells):
            key, _, pattern = condition.partition("=")
            names = {name for cell in grid.cells for name in (*_names(cell), *named_fields(cell.spec))}
            if key not in names:
                return unknown_name("key of --only", key, {short(name) for name in names})
            known = {value for cell in grid.cells if (value := _value(cell, key)) is not None}
            known = known if len(known) <= MOST_NAMED else set()
            return VitinitError(f"--only: no run of grid {grid.name!r} matches: {unknown_name(key, pattern, known)}")
    return VitinitError(f"--only {' --only '.join(only)}: no run of grid {grid.name!r} matches all of them")


def _fixed(given: list[str]) -> dict[str, Any]:
    """Values by field, of `--set`: each as YAML."""
    from vitinit.benchmark.files.yaml_text import mapping

    fixed: dict[str, Any] = {}
    for text in given:
        field, equals, value = text.partition("=")
        if not field or not equals:
            raise VitinitError(f"--set {plain(text, 60)!r}: write FIELD=VALUE, as in recipe.lr=1e-3")
        if field in fixed:
            raise VitinitError(f"--set {field} is there twice")
        fixed[field] = mapping(f"value: {value}".encode(), Path(f"--set {field}"))["value"]
    return fixed


def _seeds(text: str | None) -> list[int] | None:
    if text is None:
        return None
    from vitinit.benchmark.grids.schema import MAX_SEEDS, no_seed_twice

    shown, seeds = plain(text, 60), list[int]()
    try:
        for part in text.split(","):
            first, dash, last = part.partition("-")
            named = range(int(first), int(last if dash else first) + 1)
            if not named:
                raise VitinitError(f"--seeds {shown!r}: {part[:60]!r} names no seed")
            if named[-1] - named[0] >= MAX_SEEDS or len(seeds) + len(named) > MAX_SEEDS:
                raise VitinitError(f"--seeds {shown!r}: names more than {MAX_SEEDS:,} seeds")
            seeds += named
    except ValueError:
        raise VitinitError(f"--seeds {shown!r}: write 0-4 or 0,2,7") from None
    try:
        return no_seed_twice(seeds)
    except ValueError as error:
        raise VitinitError(f"--seeds {shown!r}: {error}") from None


def _names(cell: Cell) -> dict[str, str]:
    """Return the names that --only accepts."""
    spec = cell.spec
    return {
        "row": cell.row,
        "dataset": spec.dataset.label,
        "base": spec.base.name,
        "method": spec.method.name if spec.method else "none",
        "arch": spec.model.arch,
        "seed": str(spec.seed),
        "id": cell.run_id,
    }


def _equals(value: str, pattern: str) -> bool:
    """Return True if a field has a value: numbers by value, so that 1e-3 equals 0.001, text by pattern."""
    with suppress(ValueError):
        return float(value) == float(pattern)
    return fnmatch.fnmatchcase(value.lower(), pattern.lower().replace("[", "[[]"))


def _value(cell: Cell, key: str) -> str | None:
    names = _names(cell)
    return names[key] if key in names else named_fields(cell.spec).get(key)


def _matches(cell: Cell, condition: str) -> bool:
    values = _names(cell)
    key, separator, pattern = condition.partition("=")
    if not separator:
        raise VitinitError(f"--only {condition!r}: write KEY=PATTERN; keys: {', '.join(values)} and every field")
    if key not in values:
        fields = named_fields(cell.spec)  # a row without this method, say, does not have its parameter
        return key in fields and _equals(fields[key], pattern)
    value, pattern = values[key].lower(), pattern.lower()
    # brackets may be those of "cifar10[5000]", and the bare name means the dataset at any size
    patterns = pattern, pattern.replace("[", "[[]")
    return any(fnmatch.fnmatchcase(value, each) for each in patterns) or (
        key == "dataset" and value.partition("[")[0] == pattern
    )


def print_plan(grid: Grid, planned: list[Planned], contents: Outline) -> None:
    """The counts, then a line for each run; labels fold on a terminal that is too narrow, and elsewhere nothing."""
    rows = [("run", "row", "dataset", "seed", "epochs", "state")]
    for item in planned:
        spec = item.cell.spec
        rows.append((item.cell.run_id, *item.cell.place, str(spec.seed), str(spec.recipe.epochs), item.state))
    heading, *lines = aligned(rows, right=(3, 4), room=console.room)
    console.print(grid.title)
    console.print(_counts(planned))
    for line in heading.splitlines():
        console.print(line, style="bold")
    print("\n".join(map(_with_reason, lines, planned)), file=console.file)
    for line in left_out(planned):
        console.print(line, style="yellow")
    for line in _details(planned, contents):
        console.print(line)


def _with_reason(line: str, item: Planned) -> str:
    """The line of a run and why it is as it is, on lines of its own on a terminal."""
    if not item.reason or item.state not in ("queued", "failed", "to do"):
        return line
    reason = plain(item.reason)
    if not console.room:
        return f"{line}: {reason}"
    return "\n".join([line, *wrap(reason, max(console.width, 20), initial_indent="  ", subsequent_indent="  ")])


def not_records(planned: list[Planned], contents: Outline) -> list[str]:
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


def recorded_otherwise(planned: list[Planned], contents: Outline) -> list[str]:
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


def _hours(planned: list[Planned], folder: Path) -> list[str]:
    """Return a line on how long the runs without a record take here; none where no record of this machine tells it."""
    from vitinit.runners.basics.environment import device_name
    from vitinit.runners.launching.estimate import estimate

    left = [item.cell for item in planned if item.state != "done" and not item.cell.misfit]
    if not left or not folder.is_dir():
        return []
    device = default_device()
    seconds, machine = estimate(left, [folder], device, device_name(device))
    if not seconds:
        return []
    missing = f", without {count(len(left) - len(seconds), 'run')} unlike them" if len(seconds) < len(left) else ""
    return [f"{sum(seconds.values()) / 3600:.2f} hours, one run at a time, by records of {machine}{missing}"]


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
    from vitinit.benchmark.grids.fits import summary

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


def _status(grid: Grid, planned: list[Planned], contents: Outline) -> Group:
    from vitinit.runners.launching.plan import STATES

    table = Table(title=grid.title, box=box.SIMPLE_HEAD)
    states = [state for state in STATES if any(item.state == state for item in planned)]
    metrics = {metric_label(contents.done[p.cell.run_id].last.metric) for p in planned if p.state == "done"}
    measured = " or ".join(sorted(metrics, reverse=True)) or metric_label("top1")
    for heading in ("row", "dataset", *states, f"{measured} (last epoch)"):
        table.add_column(heading, justify="left" if heading in ("row", "dataset") else "right", overflow="fold")
    groups: dict[tuple[str, str], list[Planned]] = {}
    for item in planned:
        groups.setdefault(item.cell.place, []).append(item)
    for (row, dataset), items in groups.items():
        last = [contents.done[item.cell.run_id].last for item in items if item.state == "done"]
        counts = Counter(item.state for item in items)
        scores = [row.score for row in last if row.score is not None]
        mean = f"{sum(scores) / len(scores):.2f}% (n={len(scores)})" if scores else ""
        table.add_row(row, dataset, *(str(counts[state] or "") for state in states), mean)
    failed = [f"failed {p.cell.run_id}, {p.cell.describe()}: {p.reason}" for p in planned if p.state == "failed"]
    return Group(_counts(planned), table, *failed, *_details(planned, contents))


def _counts(planned: list[Planned]) -> str:
    """Number of runs, and of those in each state."""
    from vitinit.runners.launching.plan import STATES

    counts = Counter(item.state for item in planned)
    return f"{count(len(planned), 'run')}: " + ", ".join(f"{counts[each]} {each}" for each in STATES if counts[each])


def _next(grid: str, planned: list[Planned], *narrowed: object) -> list[str]:
    """Return a line with the command that a user wants next: what carries out what is left, else the table.

    There is none where options have `narrowed` what was planned: they would belong to the command.
    """
    if any(narrowed):
        return []
    states = {item.state for item in planned}
    if "to do" in states:
        return [f"next: vitinit run {grid}"]
    if "failed" in states:
        return [f"next: vitinit run {grid} --retry-failed"]
    return [f"next: python -m vitinit.analysis.tables --study {Path(grid).stem}"] if states == {"done"} else []


def _details(planned: list[Planned], contents: Outline) -> list[str]:
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
