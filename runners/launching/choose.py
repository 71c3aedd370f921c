"""Choosing runs of a grid: `--seeds`, `--set`, `--only`, `--limit`. Imports no torch."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitinit.benchmark.records.store import Contents, Store
from vitinit.benchmark.settings import named_fields, short
from vitinit.initializers.errors import VitinitError, plain, unknown_name
from vitinit.runners.options import LOCAL

if TYPE_CHECKING:
    from vitinit.benchmark.grids.schema import Cell, Grid
    from vitinit.benchmark.spec import DatasetSpec
    from vitinit.runners.launching.plan import Planned, State

MOST_NAMED = 30
"""An error names no more values than this."""


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
    return grids.load(grid, _seeds(seeds), fixed_values(fixed or []))


def planned_of(
    grid: Grid,
    store: Store,
    only: list[str] | None,
    data_dir: Path | None,
    recorded: bool = False,
    missing: Callable[[DatasetSpec], str | None] | None = None,
) -> tuple[list[Planned], Contents]:
    """Plan the runs of a loaded grid that `--only` chooses; `recorded` and `missing` as in `launching.plan`."""
    from vitinit.benchmark.datasets.load import data_dir as data_folder
    from vitinit.runners.launching.plan import plan as plan_grid

    kept = [cell for cell in grid.cells if all(matches(cell, condition) for condition in only or ())]
    if grid.cells and not kept:
        raise _nothing_matches(grid, only or [])
    return plan_grid(replace(grid, cells=kept), store, data_folder(data_dir), recorded, missing)


def _nothing_matches(grid: Grid, only: list[str]) -> VitinitError:
    for condition in only:
        if not any(matches(cell, condition) for cell in grid.cells):
            key, _, pattern = condition.partition("=")
            names = {name for cell in grid.cells for name in (*_names(cell), *named_fields(cell.spec))}
            if key not in names:
                return unknown_name("key of --only", key, {short(name) for name in names})
            known = {value for cell in grid.cells if (value := _value(cell, key)) is not None}
            known = known if len(known) <= MOST_NAMED else set()
            return VitinitError(f"--only: no run of grid {grid.name!r} matches: {unknown_name(key, pattern, known)}")
    return VitinitError(f"--only {' --only '.join(only)}: no run of grid {grid.name!r} matches all of them")


def fixed_values(given: list[str]) -> dict[str, Any]:
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
    from vitinit.benchmark.grids.schema import seeds_of

    try:
        return None if text is None else list(seeds_of(text))
    except ValueError as error:
        raise VitinitError(f"--seeds {plain(text or '', 60)!r}: {error}") from None


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


def matches(cell: Cell, condition: str) -> bool:
    """Check a run against a condition of `--only`."""
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
