"""Grids: a YAML file of (datasets x rows x seeds) blocks becomes a list of fully resolved RunSpecs.

This module imports no torch; what needs it to resolve a grid is in `benchmark/grids/resolve.py`.
"""

from __future__ import annotations

import re
from pathlib import Path

from pydantic import ValidationError

from benchmark.files.yaml_text import mapping
from benchmark.grids import cache as grid_cache
from benchmark.grids.parts import HERE, read
from benchmark.grids.schema import Cell, Grid, GridFile, Resolved
from initializers.errors import VitinitError, explain, unknown_name

MAX_RUNS = 100_000
"""Of a grid; a list of so many is made in seconds."""


def names() -> list[str]:
    """Names of the grids that ship with the benchmark."""
    return sorted(path.stem for path in (HERE / "grids").glob("*.yaml"))


def load(name_or_path: str, seeds: list[int] | None = None) -> Grid:
    """Read a grid by name, or from a YAML file, and resolve every run.

    Resolving imports torch, which takes seconds, so a resolved grid is kept in the user's cache folder
    (`benchmark/grids/cache.py`) and torch is imported only when the grid or the code has changed. A grid that names an
    initialiser or a model family from outside this project (a dotted path, or a plug-in by entry point) is resolved
    anew each time: nothing here could tell that its code has changed. Errors are never kept.

    Args:
        name_or_path: a name from `names()` or a path that ends in .yaml or .yml.
        seeds: in place of the grid's own seeds.

    Raises:
        VitinitError: unknown name, unreadable file, unknown field, or a run that could not be carried out (a method
            that fits the model of no block, say); the message names the row.
    """
    path = Path(name_or_path)
    if path.suffix not in (".yaml", ".yml"):
        if name_or_path not in names():
            raise unknown_name("grid", name_or_path, names())
        path = HERE / "grids" / f"{name_or_path}.yaml"
    if not re.fullmatch(r"[\w.-]*\w[\w.-]*", path.stem):
        raise VitinitError(f"grid file {path}: its name becomes a folder; use letters, digits, '-', '_' and '.'")
    content = read(path)
    key = grid_cache.key(content, seeds)
    kept = grid_cache.read(key, Resolved)
    if kept is not None:
        return Grid(path.stem, kept.title, _cells(kept, path.stem), kept.contrasts)
    from benchmark.grids.resolve import only_ours, resolve

    try:
        file = GridFile.model_validate(mapping(content, path))
    except ValidationError as error:
        raise explain(error, f"grid file {path}") from None
    resolved = Resolved(title=file.title, series=resolve(file, seeds, path.stem), contrasts=file.contrasts)
    cells = _cells(resolved, path.stem)
    if only_ours(resolved.series):
        grid_cache.write(key, resolved)
    return Grid(path.stem, file.title, cells, file.contrasts)


def _cells(resolved: Resolved, study: str) -> list[Cell]:
    """The runs of all series; one that two blocks name is there once."""
    count = sum(len(series.seeds) for series in resolved.series)
    if count > MAX_RUNS:
        raise VitinitError(f"grid {study!r}: has {count:,} runs, at most {MAX_RUNS:,} are possible")
    cells: dict[str, Cell] = {}
    for series in resolved.series:
        for cell in series.cells():
            other = cells.setdefault(cell.run_id, cell)
            if other.row != cell.row:
                raise VitinitError(f"grid {study!r}, row {cell.row!r}: is the same run as row {other.row!r}")
    return list(cells.values())
