"""Datasets and recipes by name, as grids name them. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from vitinit.benchmark.augmentations import registry as augmentations
from vitinit.benchmark.datasets import registry as datasets
from vitinit.benchmark.files.yaml_text import mapping
from vitinit.benchmark.optimizers import registry as optimizers
from vitinit.benchmark.spec import FIRST, LAST, AugmentationSpec, DatasetSpec, OptimizerSpec, Recipe
from vitinit.initializers import own_files
from vitinit.initializers.errors import VitinitError, explain, os_errors, unknown_name

HERE = Path(__file__).parents[1]


MAX_BYTES = 2**20
"""A megabyte of YAML is read in seconds; the largest grid of this project has 3,000 bytes."""


@cache
def recipes() -> list[str]:
    """Names of the recipes that ship with the benchmark."""
    return sorted(path.stem for path in (HERE / "recipes").glob("*.yaml"))


def resolve_dataset(named: Mapping[str, Any]) -> DatasetSpec:
    """A DatasetSpec from its YAML form; `folder:PATH` is short for name `folder` and a path, `hf:NAME` likewise."""
    fields = dict(named)
    name = str(fields.get("name"))
    before, colon, path = (name, "", "") if own_files.is_pinned(name) else name.partition(":")
    known = datasets.get(before if colon and before in datasets.names() else name)
    if colon and "path" in fields:
        raise VitinitError(f"dataset {name!r}: its path is there twice, {path!r} and {fields['path']!r}")
    if colon:
        fields |= {"name": known.name, "path": path}
    try:
        spec = DatasetSpec.model_validate(fields)
    except ValidationError as error:
        raise explain(error, f"dataset {name!r}", DatasetSpec) from None
    known.training_images(spec)
    return spec


def resolve_recipe(named: Mapping[str, Any]) -> Recipe:
    """A Recipe by name, with fields overridden; `augment` takes the place of all its augmentations but the crop.

    Raises:
        VitinitError: unknown recipe or a field that is not valid.
    """
    name = str(named.get("name"))
    if name not in recipes():
        raise unknown_name("recipe", name, recipes())
    shipped = _recipe(HERE / "recipes" / f"{name}.yaml")
    try:
        fields = augment_as_fields(named)
        if "augment" in named:
            replaced = {*FIRST, *LAST}
            if not (fields.get("mixup") or fields.get("cutmix")):
                replaced.add("mix_images")
            shipped = {field: value for field, value in shipped.items() if field not in replaced}
        recipe = Recipe.model_validate({**shipped, **fields})
    except ValidationError as error:
        raise explain(error, f"recipe {name!r}", Recipe) from None
    try:
        augment = tuple(map(augmentations.resolve, recipe.augment))
        optimizer = _optimizer(recipe.optimizer.model_dump_json(), recipe.weight_decay > 0)
    except VitinitError as error:
        raise VitinitError(f"recipe {name!r}: {error}") from None
    return recipe.model_copy(update={"optimizer": optimizer, "augment": augment})


def augment_as_fields(named: Mapping[str, Any]) -> dict[str, Any]:
    """The beginning and the end of `augment` as fields of a recipe, as far as their order is that of the fields.

    So one augmentation has one identity, whichever way a grid writes it.

    Raises:
        ValidationError, VitinitError: an entry is not valid, or one that only a field can be is not at the end.
    """
    fields = dict(named)
    if not isinstance(fields.get("augment"), list):
        return fields
    rest = [AugmentationSpec.model_validate(each) for each in fields["augment"]]
    for place, name in enumerate(FIRST):
        if rest and rest[0].name == name and not any(fields.get(each) for each in list(FIRST)[place:]):
            fields[name] = _only_parameter(rest.pop(0), *FIRST[name])
    for name in reversed(LAST):
        if rest and rest[-1].name == name and not fields.get(name):
            fields[name] = _only_parameter(rest.pop(), *LAST[name])
    if found := [each.name for each in rest if each.name in LAST]:
        raise VitinitError(f"augment: {found[0]} is there once, at the end, in the order {', '.join(LAST)}")
    return {**fields, "augment": rest}


def _only_parameter(spec: AugmentationSpec, name: str, default: Any) -> Any:
    if other := [each for each in spec.params if each != name]:
        raise VitinitError(f"augment: {spec.name} has no {other[0]!r}, only {name}")
    return spec.params.get(name, default)


@cache  # hundreds of rows of a grid share a few optimisers
def _optimizer(content: str, decays: bool) -> OptimizerSpec:
    return optimizers.resolve(OptimizerSpec.model_validate_json(content), decays)


@cache  # and a few recipes
def _recipe(path: Path) -> dict[str, Any]:
    return mapping(read(path), path)


def read(path: Path) -> bytes:
    """Return the parsed content of a YAML file.

    Raises:
        VitinitError: it cannot be read, or is larger than any grid.
    """
    with os_errors(f"cannot read {path}"):
        if path.exists() and not path.is_file():  # a pipe would be waited for, a device has no end
            raise VitinitError(f"cannot read {path}: is not a file")
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise VitinitError(f"cannot read {path}: has more than {MAX_BYTES:,} bytes, which no grid has")
    return content
