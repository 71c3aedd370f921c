"""Grids: a YAML file of (datasets x rows x seeds) blocks becomes a list of fully resolved RunSpecs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from vitinit.benchmark.fields import is_folder_name
from vitinit.benchmark.files.yaml_text import mapping
from vitinit.benchmark.grids.parts import HERE, read
from vitinit.benchmark.grids.resolve import resolve
from vitinit.benchmark.grids.schema import Cell, Grid, GridFile, Row, Series
from vitinit.benchmark.grids.sweep import expanded
from vitinit.benchmark.settings import columns
from vitinit.initializers import own_files
from vitinit.initializers.errors import VitinitError, explain, unknown_name

MODEL = "python"
"""Field of a model that names a class."""
MAX_RUNS = 100_000
"""Upper limit of runs of a grid; a list of so many is made in seconds."""


def names() -> list[str]:
    """Names of the grids that ship with the benchmark."""
    return sorted(path.stem for path in (HERE / "grids").glob("*.yaml"))


def title(name: str) -> str:
    """Return the title of a shipped grid."""
    path = HERE / "grids" / f"{name}.yaml"
    return str(mapping(read(path), path)["title"])


def load(
    name_or_path: str,
    seeds: list[int] | None = None,
    fixed: Mapping[str, Any] | None = None,
) -> Grid:
    """Read a grid by name, or from a YAML file, and resolve every run.

    Args:
        name_or_path: a name from `names()` or a path that ends in .yaml or .yml.
        seeds: in place of the grid's own seeds.
        fixed: values of fields (`recipe.lr`) in every block, in place of the grid's own.

    Raises:
        VitinitError: unknown name, unreadable file, unknown field, or a run that could not be carried out (a method
            that fits the model of no block, say); the message names the row.
    """
    path = Path(name_or_path)
    if path.suffix not in (".yaml", ".yml"):
        if name_or_path not in names():
            raise unknown_name("grid", name_or_path, names())
        path = HERE / "grids" / f"{name_or_path}.yaml"
    if not is_folder_name(path.stem):
        raise VitinitError(f"grid file {path}: its name becomes a folder; use letters, digits, '-', '_' and '.'")
    content = read(path)
    try:
        file = GridFile.model_validate(mapping(content, path))
    except ValidationError as error:
        raise explain(error, f"grid file {path}", GridFile) from None
    file = _with_own_files(file, path.parent)
    try:
        file = expanded(file, fixed or {})
    except VitinitError as error:
        raise VitinitError(f"grid {path.stem!r}, {error}") from None
    series = resolve(file, seeds, path.stem)
    cells = _cells(series, path.stem)
    return Grid(path.stem, file.title, cells, _contrasts(file, series))


def _with_own_files(file: GridFile, folder: Path) -> GridFile:
    """Return a grid in which every name of a file has its content.

    Args:
        file: the grid.
        folder: that it lies in.

    Raises:
        VitinitError: a file is not there, or has nothing of this name.
    """
    rows = {label: _row(row, folder) for label, row in file.rows.items()}
    blocks = [
        block.model_copy(
            update={
                "model": _fields(block.model, MODEL, folder),
                "datasets": [_fields(dataset, "name", folder) for dataset in block.datasets],
            }
        )
        for block in file.blocks
    ]
    return file.model_copy(update={"rows": rows, "blocks": blocks})


def _row(row: Row, folder: Path) -> Row:
    method = row.method and _initializer(row.method, folder)
    model = _fields(row.model, MODEL, folder)
    return row.model_copy(update={"base": _initializer(row.base, folder), "method": method, "model": model})


def _initializer(named: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """With that inside it (`of`), where it wraps another."""
    fields = _fields(named, "name", folder)
    of = fields.get("of")
    if isinstance(of, str):
        fields["of"] = own_files.pinned(of, folder)
    elif isinstance(of, Mapping):
        fields["of"] = _initializer(of, folder)
    return fields


def _fields(fields: Mapping[str, Any], key: str, folder: Path) -> dict[str, Any]:
    value = fields.get(key)
    return {**fields, key: own_files.pinned(value, folder)} if isinstance(value, str) else dict(fields)


def _contrasts(file: GridFile, series: list[Series]) -> list[tuple[str, str]]:
    """The contrasts of a grid; of a row that a sweep has made several of, one for each, at the same values."""
    ends = {label: dict.fromkeys(one.told for one in series if one.row == label + one.told) for label in file.rows}
    return [
        (first + end, second + other)
        for first, second in file.contrasts
        for end in ends[first]
        for other in ends[second]
        if end == other or not end or not other
    ]


def _cells(resolved: list[Series], study: str) -> list[Cell]:
    """The runs of all series; one that two blocks name is there once."""
    count = sum(len(series.seeds) for series in resolved)
    if count > MAX_RUNS:
        raise VitinitError(f"grid {study!r}: has {count:,} runs, at most {MAX_RUNS:,} are possible")
    named = {str(number): series for number, series in enumerate(resolved)}
    fitting = {number for number, series in named.items() if not series.misfit}
    column = columns({number: (series.row, series.spec) for number, series in named.items()}, fitting)
    cells: dict[str, Cell] = {}
    for number, series in named.items():
        for cell in series.cells(column[number]):
            other = cells.setdefault(cell.run_id, cell)
            if other.row != cell.row:
                raise VitinitError(f"grid {study!r}, row {cell.row!r}: is the same run as row {other.row!r}")
    return list(cells.values())
