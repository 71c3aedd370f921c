"""Choosing runs of a grid: `--seeds`, `--set`, `--only`. Imports no torch."""

from __future__ import annotations

import fnmatch
import unicodedata
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from vitinit.benchmark.datasets.load import data_dir as data_folder
from vitinit.benchmark.files.yaml_text import mapping
from vitinit.benchmark.grids import grid as grids
from vitinit.benchmark.grids.schema import Cell, Grid, seeds_of
from vitinit.benchmark.records.store import Store
from vitinit.benchmark.settings import named_fields, short
from vitinit.benchmark.spec import DatasetSpec
from vitinit.initializers.errors import VitinitError, plain, unknown_name
from vitinit.runners.launching.watch import View, look


def load_grid(grid: str, seeds: str | None = None, fixed: list[str] | None = None) -> Grid:
    """A grid by name or file, with what `--seeds` and `--set` say."""
    if grid not in grids.names() and Path(f"{grid}.yaml").is_file():
        raise VitinitError(f"unknown grid {grid!r}; did you mean {grid}.yaml?")
    try:
        chosen = None if seeds is None else list(seeds_of(seeds))
    except ValueError as error:
        raise VitinitError(f"--seeds {plain(seeds or '', 60)!r}: {error}") from None
    return grids.load(grid, chosen, fixed_values(fixed or []))


def seen(
    grid: Grid,
    store: Store,
    only: list[str] | None,
    data_dir: Path | None,
    missing: Callable[[DatasetSpec], str | None] | None = None,
) -> View:
    """Look at the runs of a loaded grid that `--only` chooses; `missing` as in `watch.look`."""
    chosen = grid.cells
    for condition in only or ():
        key, _, pattern = condition.partition("=")
        if grid.cells and not any(matches(cell, condition) for cell in grid.cells):
            values = [_values(cell) for cell in grid.cells]
            if known := {its[key] for its in values if key in its}:
                said = unknown_name(key, pattern, known)
                raise VitinitError(f"--only: no run of grid {grid.name!r} matches: {plain(str(said), 500)}")
            raise unknown_name("key of --only", key, {short(name) for its in values for name in its})
        chosen = [cell for cell in chosen if matches(cell, condition)]
    if grid.cells and not chosen:
        raise VitinitError(f"--only {' --only '.join(only or ())}: no run of grid {grid.name!r} matches all of them")
    return look(replace(grid, cells=chosen), store, data_folder(data_dir), missing)


def matches(cell: Cell, condition: str) -> bool:
    """Check a run against a condition of `--only`: numbers by value, text by pattern, a dataset at any size."""
    key, equals, pattern = condition.partition("=")
    values = _values(cell)
    if not equals:
        raise VitinitError(f"--only {condition!r}: write KEY=PATTERN; keys: {', '.join(KEYS)} and every field")
    if key not in values:  # a row without this method, say, does not have its parameter
        return False
    value, pattern = (unicodedata.normalize("NFC", text).lower() for text in (values[key], pattern))
    if key == "dataset" and value.partition("[")[0] == pattern:
        return True
    with suppress(ValueError):
        if key != "id":
            return float(value) == float(pattern)
    # brackets may be those of "cifar10[5000]"
    return any(fnmatch.fnmatchcase(value, each) for each in (pattern, pattern.replace("[", "[[]")))


KEYS = "row", "dataset", "base", "method", "arch", "seed", "id"
"""Keys of `--only` beside the fields of a spec."""


def _values(cell: Cell) -> dict[str, str]:
    spec = cell.spec
    method = spec.method.name if spec.method else "none"
    named = cell.row, spec.dataset.label, spec.base.name, method, spec.model.arch, str(spec.seed), cell.run_id
    return {**named_fields(spec), **dict(zip(KEYS, named, strict=True))}


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
