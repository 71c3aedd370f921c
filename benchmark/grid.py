"""Grids: a YAML file of (datasets x rows x seeds) blocks becomes a list of fully resolved RunSpecs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import torch
import yaml
from pydantic import BeforeValidator, Field, ValidationError

from benchmark.datasets import NAMES as DATASETS
from benchmark.models import PRESETS, build_model
from benchmark.spec import DatasetSpec, Frozen, InitializerSpec, ModelSpec, Recipe, RunSpec
from initializers import registry
from initializers.errors import VitinitError, explain, unknown_name

HERE = Path(__file__).parent

Seeds = Annotated[list[Annotated[int, Field(ge=0, lt=2**63)]], Field(min_length=1)]


def _named(value: Any) -> Any:
    """`mimetic` and `{name: mimetic, beta_qk: 0.5}` both become a mapping with a name."""
    return {"name": value} if isinstance(value, str) else value


Named = Annotated[dict[str, Any], BeforeValidator(_named)]


class Row(Frozen):
    """One line of the table: a base, a method over it or none, and what it needs changed in the block's model."""

    base: Named
    method: Named | None = None
    model: dict[str, Any] = Field(default_factory=dict)


class Block(Frozen):
    """The product of its datasets, rows and seeds."""

    datasets: Annotated[list[Named], Field(min_length=1)]
    model: dict[str, Any]
    recipe: Named
    seeds: Seeds


class GridFile(Frozen):
    """Schema of a grid's YAML file."""

    title: str
    rows: Annotated[dict[str, Row], Field(min_length=1)]
    blocks: Annotated[list[Block], Field(min_length=1)]


@dataclass(frozen=True)
class Cell:
    """One run of a grid: its row label and its resolved spec."""

    row: str
    spec: RunSpec

    def describe(self) -> str:
        """Row, dataset and seed, for people."""
        return f"{self.row}, {self.spec.dataset.label}, seed {self.spec.seed}"


@dataclass(frozen=True)
class Grid:
    """A study's name (the file's stem), its title and its runs in table order."""

    name: str
    title: str
    cells: list[Cell]


def names() -> list[str]:
    """Names of the grids that ship with the benchmark."""
    return sorted(path.stem for path in (HERE / "grids").glob("*.yaml"))


def recipes() -> list[str]:
    """Names of the recipes that ship with the benchmark."""
    return sorted(path.stem for path in (HERE / "recipes").glob("*.yaml"))


def load(name_or_path: str, seeds: list[int] | None = None) -> Grid:
    """Read a grid by name, or from a YAML file, and resolve every run.

    Args:
        name_or_path: a name from `names()` or a path that ends in .yaml or .yml.
        seeds: in place of the grid's own seeds.

    Raises:
        VitinitError: unknown name, unreadable file, unknown field, or a run that could not be carried out (a method
            that does not fit its model, say); the message names the row.
    """
    path = Path(name_or_path)
    if path.suffix not in (".yaml", ".yml"):
        if name_or_path not in names():
            raise unknown_name("grid", name_or_path, names())
        path = HERE / "grids" / f"{name_or_path}.yaml"
    if not re.fullmatch(r"[\w.-]*\w[\w.-]*", path.stem):
        raise VitinitError(f"grid file {path}: its name becomes a folder; use letters, digits, '-', '_' and '.'")
    try:
        content = GridFile.model_validate(read_yaml(path))
    except ValidationError as error:
        raise explain(error, f"grid file {path}") from None
    cells: dict[str, Cell] = {}
    for block in content.blocks:
        recipe = resolve_recipe(block.recipe)
        for dataset in block.datasets:
            for label, row in content.rows.items():
                where = f"grid {path.stem!r}, row {label!r}"
                for seed in seeds or block.seeds:
                    spec = _resolve_run(row, dataset, block.model, recipe, seed, where)
                    other = cells.setdefault(spec.run_id, Cell(label, spec))
                    if other.row != label:
                        raise VitinitError(f"{where}: is the same run as row {other.row!r}")
    return Grid(path.stem, content.title, list(cells.values()))


def _resolve_run(
    row: Row, dataset: dict[str, Any], model: dict[str, Any], recipe: Recipe, seed: int, where: str
) -> RunSpec:
    try:
        spec = RunSpec(
            dataset=resolve_dataset(dataset),
            model=resolve_model({**model, **row.model}),
            base=resolve_initializer(row.base, "base"),
            method=resolve_initializer(row.method, "method") if row.method else None,
            recipe=recipe,
            seed=seed,
        )
        check_fit(spec)
    except ValidationError as error:
        raise explain(error, where) from None
    except VitinitError as error:
        raise VitinitError(f"{where}: {error}") from None
    return spec


def resolve_dataset(named: Mapping[str, Any]) -> DatasetSpec:
    """A DatasetSpec from its YAML form; `folder:PATH` is short for name `folder` and a path."""
    fields = dict(named)
    name = str(fields.get("name"))
    if name.startswith("folder:"):
        fields |= {"name": "folder", "path": name.removeprefix("folder:")}
    elif name not in DATASETS:
        raise unknown_name("dataset", name, DATASETS)
    return DatasetSpec.model_validate(fields)


def resolve_model(fields: Mapping[str, Any]) -> ModelSpec:
    """A ModelSpec from a preset (optional) and explicit fields, which win."""
    explicit = dict(fields)
    preset = explicit.pop("preset", None)
    if preset is not None and preset not in PRESETS:
        raise unknown_name("model", str(preset), PRESETS)
    return ModelSpec.model_validate({**PRESETS.get(str(preset), {}), **explicit})


def resolve_recipe(named: Mapping[str, Any]) -> Recipe:
    """A Recipe by name, with fields overridden.

    Raises:
        VitinitError: unknown recipe or a field that is not valid.
    """
    name = str(named.get("name"))
    if name not in recipes():
        raise unknown_name("recipe", name, recipes())
    try:
        return Recipe.model_validate({**read_yaml(HERE / "recipes" / f"{name}.yaml"), **named})
    except ValidationError as error:
        raise explain(error, f"recipe {name!r}") from None


def resolve_initializer(named: Mapping[str, Any], kind: Any) -> InitializerSpec:
    """An InitializerSpec with every default filled in, so that the run's identity does not depend on defaults."""
    params = {key: value for key, value in named.items() if key != "name"}
    initializer = registry.build(str(named.get("name")), params, kind)
    return InitializerSpec(name=str(named["name"]), params=initializer.model_dump(mode="json"))


def check_fit(spec: RunSpec) -> None:
    """Ask base and method whether they fit the model, before anything is allocated or trained.

    Raises:
        VitinitError: they do not; the message says what the model lacks.
    """
    for part, kind in ((spec.base, "base"), (spec.method, "method")):
        if part is not None:
            _check_fit(spec.model, part.model_dump_json(), kind)


@cache
def _check_fit(model: ModelSpec, initializer_json: str, kind: Any) -> None:
    part = InitializerSpec.model_validate_json(initializer_json)
    with torch.device("meta"):
        empty = build_model(model, classes=10)
    registry.build(part.name, part.params, kind).check(empty)


def read_yaml(path: Path) -> dict[str, Any]:
    """A YAML mapping, read safely.

    Raises:
        VitinitError: the file cannot be read or is no mapping.
    """
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise VitinitError(f"cannot read {path}: {error}") from None
    except yaml.YAMLError as error:
        raise VitinitError(f"{path} is not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(content, dict):
        raise VitinitError(f"{path} does not hold a mapping")
    return content
