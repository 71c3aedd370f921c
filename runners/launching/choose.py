"""Choosing runs of a grid: `--seeds`, `--set`, `--only`. Imports no torch."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from vitinit.benchmark.datasets.load import data_dir as data_folder
from vitinit.benchmark.files.yaml_text import mapping
from vitinit.benchmark.grids import grid as grids
from vitinit.benchmark.grids.schema import Cell, Grid, seeds_of
from vitinit.benchmark.records.store import Contents, Store
from vitinit.benchmark.settings import named_fields, short
from vitinit.benchmark.spec import DatasetSpec
from vitinit.initializers.errors import VitinitError, plain, unknown_name
from vitinit.runners.launching.plan import Planned, plan

MOST_NAMED = 30
"""An error names no more values than this."""


def load_grid(grid: str, seeds: str | None = None, fixed: list[str] | None = None) -> Grid:
    """A grid by name or file, with what `--seeds` and `--set` say."""
    if re.fullmatch(r"[\w-]+", grid) and grid not in grids.names():
        own = [file for file in (f"{grid}.yaml", f"{grid}.yml") if Path(file).is_file()]
        if own:
            raise VitinitError(f"unknown grid {grid!r}; did you mean {own[0]}?")
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
    chosen = grid.cells
    for condition in only or ():
        if grid.cells and not any(matches(cell, condition) for cell in grid.cells):
            raise _nothing_matches(grid, condition)
        chosen = [cell for cell in chosen if matches(cell, condition)]
    if grid.cells and not chosen:
        raise VitinitError(f"--only {' --only '.join(only or ())}: no run of grid {grid.name!r} matches all of them")
    return plan(replace(grid, cells=chosen), store, data_folder(data_dir), recorded, missing)


def matches(cell: Cell, condition: str) -> bool:
    """Check a run against a condition of `--only`: numbers by value, text by pattern, a dataset at any size."""
    key, equals, pattern = condition.partition("=")
    values = _values(cell)
    if not equals:
        keys = ", ".join(_names(cell))
        raise VitinitError(f"--only {condition!r}: write KEY=PATTERN; keys: {keys} and every field")
    if key not in values:  # a row without this method, say, does not have its parameter
        return False
    value, pattern = values[key].lower(), pattern.lower()
    if key == "dataset" and value.partition("[")[0] == pattern:
        return True
    with suppress(ValueError):
        if key != "id":
            return float(value) == float(pattern)
    # brackets may be those of "cifar10[5000]"
    return any(fnmatch.fnmatchcase(value, each) for each in (pattern, pattern.replace("[", "[[]")))


def _names(cell: Cell) -> dict[str, str]:
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


def _values(cell: Cell) -> dict[str, str]:
    return {**named_fields(cell.spec), **_names(cell)}


def _nothing_matches(grid: Grid, condition: str) -> VitinitError:
    key, _, pattern = condition.partition("=")
    values = [_values(cell) for cell in grid.cells]
    known = {its[key] for its in values if key in its}
    if not known:
        return unknown_name("key of --only", key, {short(name) for its in values for name in its})
    shown = known if len(known) <= MOST_NAMED else ()
    return VitinitError(f"--only: no run of grid {grid.name!r} matches: {unknown_name(key, pattern, shown)}")


def fixed_values(given: list[str]) -> dict[str, Any]:
    """Values by field, of `--set`: each as YAML."""
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
    try:
        return None if text is None else list(seeds_of(text))
    except ValueError as error:
        raise VitinitError(f"--seeds {plain(text or '', 60)!r}: {error}") from None
