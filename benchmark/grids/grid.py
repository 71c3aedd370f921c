"""Grids: a YAML file of (datasets x rows x seeds) blocks becomes a list of fully resolved runs."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from vitinit.benchmark.datasets import registry as datasets
from vitinit.benchmark.fields import is_folder_name
from vitinit.benchmark.grids.fitting import misfit, resolve_initializer, sources
from vitinit.benchmark.grids.parts import HERE, check_recipe, read, resolve_dataset, resolve_model, resolve_recipe
from vitinit.benchmark.grids.schema import Block, Cell, Grid, GridFile, Row, named
from vitinit.benchmark.models import registry as models
from vitinit.benchmark.settings import columns
from vitinit.benchmark.spec import DatasetSpec, RunSpec
from vitinit.initializers import plugins
from vitinit.initializers.errors import BrokenFile, VitinitError, explain, unknown_name

PARTS = ("dataset", "model", "base", "method", "recipe")
Values = dict[str, dict[str, Any]]
"""Values that a sweep or `--set` gives to fields, by part of a run."""


def names() -> list[str]:
    """Names of the grids that ship with the benchmark."""
    return sorted(path.stem for path in (HERE / "grids").glob("*.yaml"))


def title(name: str) -> str:
    """Return the title of a shipped grid."""
    return str(read(HERE / "grids" / f"{name}.yaml")["title"])


def load(name_or_path: str, seeds: list[int] | None = None, fixed: Mapping[str, Any] | None = None) -> Grid:
    """Read a grid by name, or from a YAML file, and resolve every run.

    A run whose base or method does not fit its model has the reason: it is skipped.

    Args:
        name_or_path: a name from `names()` or a path that ends in .yaml or .yml.
        seeds: in place of the grid's own seeds.
        fixed: values of fields (`recipe.lr`) in every block, in place of the grid's own.

    Raises:
        VitinitError: unknown name, unreadable file, unknown field, or a run that could not be carried out; the message
            names the block, and the row. A file of code that cannot be used is blamed on neither.
    """
    path = Path(name_or_path)
    if path.suffix not in (".yaml", ".yml"):
        if name_or_path not in names():
            raise unknown_name("grid", name_or_path, names())
        path = HERE / "grids" / f"{name_or_path}.yaml"
    if not is_folder_name(path.stem):
        raise VitinitError(f"grid file {path}: its name becomes a folder; use letters, digits, '-', '_' and '.'")
    content = _with_content(read(path), path.parent)
    try:
        file = GridFile.model_validate(content)
    except ValidationError as error:
        raise explain(error, f"grid file {path}", GridFile) from None
    for registered in (datasets.names, models.families):
        registered()  # what is wrong with a file is not wrong with a block
    series = [one for number in range(len(file.blocks)) for one in _of_block(file, number, fixed or {}, path.stem)]
    ends = {label: dict.fromkeys(one.end for one in series if one.label == label) for label in file.rows}
    contrasts = [
        (first + end, second + other)
        for first, second in file.contrasts
        for end in ends[first]
        for other in ends[second]
        if end == other or not end or not other
    ]
    return Grid(path.stem, file.title, _cells(series, seeds, path.stem), contrasts)


def _with_content(value: Any, folder: Path) -> Any:
    """Return the content of a grid in which every name of a file has that file's content."""
    if isinstance(value, dict):
        return {key: _with_content(each, folder) for key, each in value.items()}
    if isinstance(value, list):
        return [_with_content(each, folder) for each in value]
    return plugins.pinned(value, folder) if isinstance(value, str) and plugins.in_a_file(value) else value


class _Series(NamedTuple):
    """Runs of a grid that differ by their seed only."""

    label: str
    """Label of the row in the file."""
    end: str
    """End of the label where a sweep of a method makes several rows of one: `, factor 0.5`."""
    cell: Cell
    """Without a column, at the first of the seeds."""
    seeds: list[int]


def _of_block(file: GridFile, number: int, fixed: Mapping[str, Any], study: str) -> Iterator[_Series]:
    """Each row on each dataset, for every combination of what is swept, in table order."""
    block, where = file.blocks[number], f"grid {study!r}, block {number + 1}"
    for chosen in itertools.product(*block.sweep.values()):
        swept = dict(zip(block.sweep, chosen, strict=True))
        with _blamed(where):
            values = _by_part({**swept, **fixed}, file)
            found = [resolve_dataset({**each, **values["dataset"]}) for each in block.datasets]
        told = sorted(name.partition(".")[2] for name in swept.keys() - fixed.keys() if name.startswith("method."))
        for dataset, (label, row) in itertools.product(found, file.rows.items()):
            with _blamed(f"{where}, row {label!r}"):
                has = _having(row.method, values["method"])
                its = {name.removeprefix("of."): value for name, value in has.items()}
                end = "".join(f", {name} {_text(its[name])}" for name in told if name in its)
                cell = _cell(label + end, row, dataset, block, values)
            yield _Series(label, end, cell, block.seeds)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


@contextmanager
def _blamed(where: str) -> Iterator[None]:
    try:
        yield
    except ValidationError as error:
        raise explain(error, where) from None
    except BrokenFile:
        raise
    except VitinitError as error:
        raise VitinitError(f"{where}: {error}") from None


def _cell(label: str, row: Row, dataset: DatasetSpec, block: Block, values: Values) -> Cell:
    base = resolve_initializer(_with(row.base, _having(row.base, values["base"])), "base")
    method = None
    if row.method:
        method = resolve_initializer(_with(row.method, _having(row.method, values["method"])), "method")
    model = resolve_model(_with(block.model, {**row.model, **values["model"]}))
    recipe = resolve_recipe(_with(block.recipe, {**row.recipe, **values["recipe"]}))
    spec = RunSpec(dataset=dataset, model=model, base=base, method=method, recipe=recipe, seed=block.seeds[0])
    check_recipe(spec)
    return Cell(label, spec, misfit(model, base, method), sources=sources(base, method))


def _by_part(given: Mapping[str, Any], file: GridFile) -> Values:
    values: Values = {part: {} for part in PARTS}
    for name, value in given.items():
        part, _, field = name.replace(".params.", ".").partition(".")
        if part not in PARTS or not field:
            raise VitinitError(f"{name!r} is no field: write PART.FIELD, as recipe.lr; parts: {', '.join(PARTS)}")
        parts = [getattr(row, part) for row in file.rows.values()] if part in ("base", "method") else []
        if parts and not any(_having(each, {field: value}) for each in parts):
            raise VitinitError(f"no {part} of a row has a parameter {field!r}")
        values[part][field] = value
    return values


def _having(part: Mapping[str, Any] | None, values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of parameters that an initialiser has, or as `of.NAME` the one that it wraps: a placebo follows."""
    from vitinit.initializers import registry

    if not part or not values:
        return {}
    has = registry.get(str(part["name"])).model_fields
    own = {name: value for name, value in values.items() if name.partition(".")[0] in has}
    inner = _having(named(part.get("of")), values)
    return {f"of.{name}": value for name, value in inner.items() if name not in own} | own


def _with(part: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return a part of a run with other values of its fields; `optimizer.momentum` is a parameter of its optimiser."""
    result = dict(part)
    for name, value in sorted(over.items(), key=lambda field: field[0].count(".")):
        outer, dot, inner = name.partition(".")
        result[outer] = _with(named(result.get(outer) or {}), {inner: value}) if dot else value
    return result


def _cells(resolved: list[_Series], seeds: list[int] | None, study: str) -> list[Cell]:
    """The runs of all series; one that two blocks name is there once."""
    keyed = {str(number): series for number, series in enumerate(resolved)}
    fitting = {number for number, series in keyed.items() if not series.cell.misfit}
    column = columns({number: (series.cell.row, series.cell.spec) for number, series in keyed.items()}, fitting)
    cells: dict[str, Cell] = {}
    for number, series in keyed.items():
        for seed in seeds or series.seeds:
            spec = series.cell.spec.model_copy(update={"seed": seed})
            cell = replace(series.cell, spec=spec, column=column[number])
            other = cells.setdefault(cell.run_id, cell)
            if other.row != cell.row:
                raise VitinitError(f"grid {study!r}, row {cell.row!r}: is the same run as row {other.row!r}")
    return list(cells.values())
