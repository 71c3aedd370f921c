"""Runs that `--only`, `--seeds` and `--set` choose of a grid."""

import fnmatch
import os
import unicodedata
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from vitinit.benchmark.files.yaml_text import mapping
from vitinit.benchmark.grids import grid as grids
from vitinit.benchmark.grids.schema import Cell, Grid, seeds_of
from vitinit.benchmark.records.store import LOCAL
from vitinit.benchmark.settings import column_names, named_fields, short
from vitinit.initializers.errors import VitinitError, plain, unknown_name


def load_grid(grid: str, seeds: str | None = None, fixed: list[str] | None = None) -> Grid:
    """A grid by name or file, with what `--seeds` and `--set` say."""
    if Path(grid).suffix not in (".yaml", ".yml") and grid not in grids.names():
        # a study of one's own, whose grid lies here or where `vitinit.run` writes it
        files = f"{grid}.yaml", f"{LOCAL}/{grid}.yaml"
        grid = next(filter(os.path.isfile, files), grid)
    try:
        chosen = None if seeds is None else list(seeds_of(seeds))
    except ValueError as error:
        raise VitinitError(f"--seeds {plain(seeds or '', 60)!r}: {error}") from None
    return grids.load(grid, chosen, fixed_values(fixed or []))


def choose(grid: Grid, only: list[str] | None) -> Grid:
    """Leave the runs that meet every condition of `--only`."""
    chosen = grid.cells
    for condition in only or ():
        key, _, pattern = condition.partition("=")
        if not any(matches(cell, condition) for cell in grid.cells):
            fields = [_values(cell) for cell in grid.cells]
            if known := {values[key] for values in fields if key in values}:
                message = plain(str(unknown_name(key, pattern, known)), 500)
                raise VitinitError(f"--only: no run of grid {grid.name!r} matches: {message}")
            raise unknown_name("key of --only", key, {short(name) for values in fields for name in values})
        chosen = [cell for cell in chosen if matches(cell, condition)]
    if only and not chosen:
        raise VitinitError(f"--only {' --only '.join(only)}: no run of grid {grid.name!r} matches all of them")
    return replace(grid, cells=chosen)


def matches(cell: Cell, condition: str) -> bool:
    """Check a run against a condition of `--only`: numbers by value, text by pattern, a dataset at any size."""
    key, equals, pattern = condition.partition("=")
    values = _values(cell)
    if not equals:
        raise VitinitError(f"--only {condition!r}: write KEY=PATTERN; keys: {KEYS} and every field")
    if key not in values:  # a row without this method, say, does not have its parameter
        return False
    value, pattern = (unicodedata.normalize("NFC", text).lower() for text in (values[key], pattern))
    names = [value]
    if key == "dataset":  # in a grid's words too, and at any size
        label = cell.spec.dataset.label.lower()
        names += [label, label.partition("[")[0], value.partition(" (")[0]]
    if key == "id" and pattern:  # its first digits are enough
        pattern += "*"
    with suppress(ValueError):
        return float(value) == float(pattern)
    plain_brackets = pattern.replace("[", "[[]")  # such as those of "cifar10[5000]"
    return any(fnmatch.fnmatchcase(name, text) for name in names for text in (pattern, plain_brackets))


KEYS = "row, dataset, base, method, arch, seed, id"
"""Keys of `--only` beside the fields of a spec."""


def _values(cell: Cell) -> dict[str, str]:
    spec = cell.spec
    method = spec.method.name if spec.method else "none"
    dataset = column_names({"": spec.dataset})[""]
    named = cell.row, dataset, spec.base.name, method, spec.model.arch, str(spec.seed), cell.run_id
    return {**named_fields(spec), **dict(zip(KEYS.split(", "), named, strict=True))}


def fixed_values(given: list[str]) -> dict[str, Any]:
    """Values by field, of `--set`: each as YAML."""
    fixed = {}
    for text in given:
        field, equals, value = text.partition("=")
        if not field or not equals:
            raise VitinitError(f"--set {plain(text, 60)!r}: write FIELD=VALUE, as in recipe.lr=1e-3")
        if field in fixed:
            raise VitinitError(f"--set {field} is there twice")
        fixed[field] = mapping(f"value: {value}".encode(), Path(f"--set {field}"))["value"]
    return fixed
