"""Grids: a YAML file of (datasets x rows x seeds) blocks becomes a list of fully resolved RunSpecs.

This module imports no torch; what needs it to resolve a grid is in `benchmark/grids/resolve.py`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError, model_validator

from benchmark.datasets.files import NAMES as DATASETS
from benchmark.datasets.files import training_images
from benchmark.fields import Frozen, Seed
from benchmark.files.yaml_text import mapping
from benchmark.grids import cache as grid_cache
from benchmark.records.store import Layout
from benchmark.spec import DatasetSpec, Recipe, RunSpec
from initializers.errors import VitinitError, explain, unknown_name

HERE = Path(__file__).parents[1]

MAX_BYTES = 2**20
"""A megabyte of YAML is read in seconds; the largest grid of this project has 3,000 bytes."""
MAX_SEEDS = 10_000
MAX_RUNS = 100_000
"""Of a grid; a list of so many is made in seconds."""


def no_seed_twice(seeds: list[int]) -> list[int]:
    """Refuse seeds of which one is named again: it would be counted once, and n be smaller than it looks."""
    for seed, times in Counter(seeds).most_common(1):
        if times > 1:
            raise ValueError(f"seed {seed} is there {'twice' if times == 2 else f'{times} times'}")
    return seeds


Seeds = Annotated[list[Seed], Field(min_length=1, max_length=MAX_SEEDS), AfterValidator(no_seed_twice)]


def _printable(text: str) -> str:
    if not text.strip() or not text.isprintable():
        raise ValueError("is to be printable text on one line, not empty")
    return text


Name = Annotated[str, Field(max_length=80), AfterValidator(_printable)]
"""Of a row: it stands in tables, figures and file names."""


def _named(value: Any) -> Any:
    """`mimetic` and `{name: mimetic, beta_qk: 0.5}` both become a mapping with a name."""
    return {"name": value} if isinstance(value, str) else value


Named = Annotated[dict[str, Any], BeforeValidator(_named)]


class Row(Frozen):
    """One line of the table: a base, a method over it or none, and what it needs changed in the block's settings."""

    base: Named
    method: Named | None = None
    model: dict[str, Any] = Field(default_factory=dict)
    recipe: dict[str, Any] = Field(default_factory=dict)
    """For what was chosen for each row on a validation split, the learning rate say (`analysis.choose` writes it)."""


class Block(Frozen):
    """The product of its datasets, rows and seeds."""

    datasets: Annotated[list[Named], Field(min_length=1)]
    model: dict[str, Any]
    recipe: Named
    seeds: Seeds


class GridFile(Frozen):
    """Schema of a grid's YAML file."""

    title: Annotated[str, Field(max_length=1_000)]
    rows: Annotated[dict[Name, Row], Field(min_length=1)]
    contrasts: list[tuple[str, str]] = Field(default_factory=list)
    """Which rows are compared with which: the first minus the second, by seed. Named before the first run, so that the
    tests of a study are those and no others."""
    blocks: Annotated[list[Block], Field(min_length=1)]

    @model_validator(mode="after")
    def _contrasts_are_of_rows(self) -> GridFile:
        for pair in self.contrasts:
            if missing := [row for row in pair if row not in self.rows]:
                raise ValueError(f"contrasts: there is no row {missing[0]!r}; the rows: {', '.join(self.rows)}")
            if pair[0] == pair[1]:
                raise ValueError(f"contrasts: the row {pair[0]!r} against itself")
        return self


@dataclass(frozen=True)
class Cell:
    """One run of a grid: its row label and its resolved spec."""

    row: str
    spec: RunSpec
    misfit: str = ""
    """Why the row's initialisers do not fit the model of its block; such a run is skipped."""

    @cached_property
    def run_id(self) -> str:
        """The spec's run_id, computed once: a plan of thousands of runs asks for it several times."""
        return self.spec.run_id

    def describe(self) -> str:
        """Row, dataset and seed, for people."""
        return f"{self.row}, {self.spec.dataset.label}, seed {self.spec.seed}"


class Series(Frozen):
    """Runs that differ by their seed only. A run_id is never stored: it is computed from the spec, always."""

    row: str
    spec: RunSpec
    """At the first of the seeds."""
    seeds: Seeds
    misfit: str = ""
    """As in `Cell`."""

    def cells(self) -> list[Cell]:
        """Its runs, in the order of the seeds."""
        shared = {name: getattr(self.spec, name) for name in RunSpec.model_fields if name != "seed"}
        return [Cell(self.row, RunSpec(**shared, seed=seed), self.misfit) for seed in self.seeds]


class Resolved(Frozen):
    """A grid with every default filled in; the form that is kept in the cache."""

    title: str
    series: list[Series]
    contrasts: list[tuple[str, str]] = Field(default_factory=list)


@dataclass(frozen=True)
class Grid:
    """A study's name (the file's stem), its title and its runs in table order."""

    name: str
    title: str
    cells: list[Cell]
    contrasts: list[tuple[str, str]]

    @property
    def layout(self) -> Layout:
        """What is put down beside the records."""
        return Layout(rows=list(dict.fromkeys(cell.row for cell in self.cells)), contrasts=self.contrasts)


def names() -> list[str]:
    """Names of the grids that ship with the benchmark."""
    return sorted(path.stem for path in (HERE / "grids").glob("*.yaml"))


def recipes() -> list[str]:
    """Names of the recipes that ship with the benchmark."""
    return sorted(path.stem for path in (HERE / "recipes").glob("*.yaml"))


def load(name_or_path: str, seeds: list[int] | None = None) -> Grid:
    """Read a grid by name, or from a YAML file, and resolve every run.

    Resolving imports torch, which takes seconds, so a resolved grid is kept in the user's cache folder
    (`benchmark/grids/cache.py`) and torch is imported only when the grid or the code has changed. A grid that names an
    initialiser from outside this project (a dotted path, or a plug-in by entry point) is resolved anew each time:
    nothing here could tell that its code has changed. Errors are never kept.

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
    content = _read(path)
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


def resolve_dataset(named: Mapping[str, Any]) -> DatasetSpec:
    """A DatasetSpec from its YAML form; `folder:PATH` is short for name `folder` and a path."""
    fields = dict(named)
    name = str(fields.get("name"))
    if name.startswith("folder:"):
        fields |= {"name": "folder", "path": name.removeprefix("folder:")}
    elif name not in DATASETS:
        raise unknown_name("dataset", name, DATASETS)
    try:
        spec = DatasetSpec.model_validate(fields)
    except ValidationError as error:
        raise explain(error, f"dataset {name!r}", DatasetSpec.model_fields) from None
    training_images(spec)
    return spec


def resolve_recipe(named: Mapping[str, Any]) -> Recipe:
    """A Recipe by name, with fields overridden.

    Raises:
        VitinitError: unknown recipe or a field that is not valid.
    """
    name = str(named.get("name"))
    if name not in recipes():
        raise unknown_name("recipe", name, recipes())
    path = HERE / "recipes" / f"{name}.yaml"
    try:
        return Recipe.model_validate({**mapping(_read(path), path), **named})
    except ValidationError as error:
        raise explain(error, f"recipe {name!r}", Recipe.model_fields) from None


def _read(path: Path) -> bytes:
    try:
        if path.exists() and not path.is_file():  # a pipe would be waited for, a device has no end
            raise VitinitError(f"cannot read {path}: is not a file")
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise VitinitError(f"cannot read {path}: {error.strerror or error}") from None
    if len(content) > MAX_BYTES:
        raise VitinitError(f"cannot read {path}: has more than {MAX_BYTES:,} bytes, which no grid has")
    return content
