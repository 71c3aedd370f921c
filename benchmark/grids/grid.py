"""Grids: a YAML file of (datasets x rows x seeds) blocks becomes a list of fully resolved runs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from vitinit.benchmark.datasets import registry as datasets
from vitinit.benchmark.fields import is_folder_name, parsed, spelled
from vitinit.benchmark.files.yaml_text import read
from vitinit.benchmark.grids.fitting import fact, fitted
from vitinit.benchmark.grids.parts import HERE, check_recipe, resolve_dataset, resolve_model, resolve_recipe
from vitinit.benchmark.grids.schema import Cell, Grid, GridFile
from vitinit.benchmark.models import registry as models
from vitinit.benchmark.settings import columns
from vitinit.benchmark.spec import RunSpec
from vitinit.initializers import plugins
from vitinit.initializers.errors import BrokenFile, VitinitError, unknown_name

PARTS = ("dataset", "model", "recipe")
MOST_RUNS = 100_000
POOLED = ("length", "convit-anatomy")
"""Grids that registered intervals and tests with the noise of all rows; a test of spreads before a test is one more
choice, so no new grid has them."""
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
    file = parsed(GridFile, content, f"grid file {path}")
    if "pooled" in (file.analysis.interval, file.analysis.test) and path.stem not in POOLED:
        raise VitinitError(f"grid file {path}: analysis: pooled is for {' and '.join(POOLED)} alone; write t")
    for registered in (datasets.names, models.families):
        registered()  # what is wrong with a file is not wrong with a block
    study = spelled(path.stem)
    found = [one for number in range(len(file.blocks)) for one in _of_block(file, number, fixed or {}, path)]
    return Grid(study, file.title, _cells(found, seeds, study), file)


def _with_content(value: Any, folder: Path) -> Any:
    """Return the content of a grid in which every name of a file has that file's content."""
    if isinstance(value, dict):
        return {key: _with_content(each, folder) for key, each in value.items()}
    if isinstance(value, list):
        return [_with_content(each, folder) for each in value]
    return plugins.pinned(value, folder) if isinstance(value, str) and plugins.in_a_file(value) else value


def _of_block(file: GridFile, number: int, fixed: Mapping[str, Any], path: Path) -> Iterator[tuple[Cell, list[int]]]:
    """Each row on each dataset, for every combination of what is swept, in table order.

    Each is the run at the first seed, without its column, and all seeds.
    """
    block, where = file.blocks[number], f"grid {path.stem!r}, block {number + 1}"
    number_of_runs = math.prod(map(len, (*block.sweep.values(), block.datasets, file.rows, block.seeds)))
    if number_of_runs > MOST_RUNS:
        raise VitinitError(f"{where}: {number_of_runs:,} runs; a block has at most {MOST_RUNS:,}")
    try:
        for chosen in itertools.product(*block.sweep.values()):
            place = where
            swept, given = _by_part(dict(zip(block.sweep, chosen, strict=True))), _by_part(fixed)
            values = {part: {**swept[part], **given[part]} for part in PARTS}
            found = [resolve_dataset({**each, **values["dataset"]}, path.parent) for each in block.datasets]
            for dataset, (label, row) in itertools.product(found, file.rows.items()):
                place = f"{where}, row {label!r}"
                model = resolve_model(_with(block.model, {**row.model, **values["model"]}))
                base, method, misfit, sources, remarks = fact(
                    fitted, model.model_dump(mode="json"), row.base, row.method
                )
                recipe = resolve_recipe(_with(block.recipe, {**row.recipe, **values["recipe"]}))
                spec = RunSpec(
                    dataset=dataset, model=model, base=base, method=method, recipe=recipe, seed=block.seeds[0]
                )
                check_recipe(spec)
                yield Cell(label, spec, misfit, sources=sources, remarks=remarks), block.seeds
    except BrokenFile:
        raise
    except VitinitError as error:
        raise VitinitError(f"{place}: {error}") from None


def _by_part(given: Mapping[str, Any]) -> Values:
    values: Values = {part: {} for part in PARTS}
    for name, value in given.items():
        part, _, field = name.replace(".params.", ".").partition(".")
        if part not in PARTS or not field:
            raise VitinitError(f"{name!r} is no field: write PART.FIELD, as recipe.lr; parts: {', '.join(PARTS)}")
        if field in values[part]:
            raise VitinitError(f"{name} is given twice, under two names; give it once")
        values[part][field] = value
    return values


def _with(part: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return a part of a run with other values of its fields; `optimizer.momentum` is a parameter of its optimiser."""
    result = dict(part)
    for name, value in sorted(over.items(), key=lambda field: field[0].count(".")):
        outer, dot, inner = name.partition(".")
        before = result.get(outer) or {}
        result[outer] = _with({"name": before} if isinstance(before, str) else before, {inner: value}) if dot else value
    return result


def _cells(found: list[tuple[Cell, list[int]]], seeds: list[int] | None, study: str) -> list[Cell]:
    """The runs of all seeds; one that two blocks name is there once."""
    runs = {str(number): (cell.row, cell.spec) for number, (cell, _) in enumerate(found)}
    column = columns(runs, {str(number) for number, (cell, _) in enumerate(found) if not cell.misfit})
    cells: dict[str, Cell] = {}
    for number, (first, its) in enumerate(found):
        for seed in seeds or its:
            spec = first.spec.model_copy(update={"seed": seed})
            cell = replace(first, spec=spec, column=column[str(number)])
            other = cells.setdefault(cell.run_id, cell)
            if other.row != cell.row:
                raise VitinitError(f"grid {study!r}, row {cell.row!r}: is the same run as row {other.row!r}")
    return list(cells.values())
