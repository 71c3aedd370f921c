"""Resolving a grid: every default filled in, every method asked whether it fits its model. Imports torch and timm."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Any

import torch
from pydantic import ValidationError
from torch import nn

from benchmark.datasets import registry as datasets
from benchmark.grids.parts import resolve_dataset, resolve_recipe
from benchmark.grids.schema import Block, GridFile, Row, Series
from benchmark.models import registry as models
from benchmark.models.build import build_model
from benchmark.models.family import ModelSpec
from benchmark.spec import InitializerSpec, RunSpec
from initializers import registry
from initializers.errors import VitinitError, explain, unknown_name


def resolve(content: GridFile, seeds: list[int] | None, study: str) -> list[Series]:
    """The runs of a grid in table order, each row on each dataset as one series of seeds.

    Where blocks have different models, a row need not fit all of them: it is skipped where it does not.

    Raises:
        VitinitError: a run that could not be carried out, or a row that fits no block; the message names the row.
    """
    series = []
    for number, block in enumerate(content.blocks, 1):
        try:
            resolve_recipe(block.recipe)
        except VitinitError as error:
            raise VitinitError(f"grid {study!r}, block {number}: {error}") from None
        for dataset in block.datasets:
            for label, row in content.rows.items():
                where = f"grid {study!r}, row {label!r}"
                series.append(_resolve_series(label, row, dataset, block, seeds or block.seeds, where))
    for label in content.rows:
        misfits = [line.misfit for line in series if line.row == label]
        if all(misfits):
            raise VitinitError(f"grid {study!r}, row {label!r}: {misfits[0]}")
    return series


def _resolve_series(
    label: str, row: Row, dataset: dict[str, Any], block: Block, seeds: list[int], where: str
) -> Series:
    try:
        spec = RunSpec(
            dataset=resolve_dataset(dataset),
            model=resolve_model({**block.model, **row.model}),
            base=resolve_initializer(row.base, "base"),
            method=resolve_initializer(row.method, "method") if row.method else None,
            recipe=resolve_recipe({**block.recipe, **row.recipe}),
            seed=seeds[0],
        )
        check_recipe(spec)
        return Series(row=label, spec=spec, seeds=seeds, misfit=misfit(spec))
    except ValidationError as error:
        raise explain(error, where) from None
    except VitinitError as error:
        raise VitinitError(f"{where}: {error}") from None


def resolve_model(fields: Mapping[str, Any]) -> ModelSpec:
    """The spec of a model from a preset (optional) and explicit fields, which win."""
    explicit, presets = dict(fields), models.presets()
    preset = explicit.pop("preset", None)
    if preset is not None and str(preset) not in presets:
        raise unknown_name("model", str(preset), presets)
    return models.spec_of({**presets.get(str(preset), {}), **explicit})


def resolve_initializer(named: Mapping[str, Any], kind: Any) -> InitializerSpec:
    """An InitializerSpec with defaults filled in, so that the run's identity does not depend on them.

    Only parameters that came later (`Initializer.later`) are left out at their default.
    """
    params = {key: value for key, value in named.items() if key != "name"}
    initializer = registry.build(str(named.get("name")), params, kind)
    return InitializerSpec(name=str(named["name"]), params=initializer.recorded_params())


def check_fit(spec: RunSpec) -> None:
    """Ask base and method whether they fit the model, before anything is allocated or trained.

    Raises:
        VitinitError: they do not; the message says what the model lacks.
    """
    for part, kind in ((spec.base, "base"), (spec.method, "method")):
        if part is not None:
            _check_fit(spec.model, part.model_dump_json(), kind)


def misfit(spec: RunSpec) -> str:
    """Why base or method do not fit the model; empty where they do."""
    try:
        check_fit(spec)
    except VitinitError as error:
        return str(error)
    return ""


def check_recipe(spec: RunSpec) -> None:
    """Refuse what does not go with the dataset, where that is known before it is read.

    Raises:
        VitinitError: the recipe crops images in a way that is for the other kind of dataset, which would be passed over
            in silence; or it has a batch that is larger than the dataset, or padding wider than its images.
    """
    recipe, dataset = spec.recipe, datasets.get(spec.dataset.name)
    images = dataset.training_images(spec.dataset)
    if images is not None and recipe.batch_size > images:
        raise VitinitError(
            f"recipe {recipe.name!r}: batch_size {recipe.batch_size} is more than the {images} training images"
        )
    if recipe.crop_padding > spec.model.image_size:
        raise VitinitError(
            f"recipe {recipe.name!r}: crop_padding {recipe.crop_padding} is more than image_size "
            f"{spec.model.image_size}: a crop could miss the image"
        )
    if dataset.packed and recipe.crop_padding:
        raise VitinitError(f"recipe {recipe.name!r}: {spec.dataset.name} has no crop_padding, it has crop_scale")
    if not dataset.packed and (recipe.crop_scale or recipe.crop_pct != 1):
        packed = ", ".join(name for name in datasets.names() if datasets.get(name).packed)
        raise VitinitError(
            f"recipe {recipe.name!r}: crop_scale and crop_pct are for {packed} only, images of "
            f"{spec.dataset.name} are in memory at their final size; they have crop_padding"
        )


@cache
def _check_fit(model: ModelSpec, initializer_json: str, kind: Any) -> None:
    part = InitializerSpec.model_validate_json(initializer_json)
    registry.build(part.name, part.params, kind).check(_empty_model(model))


@lru_cache(maxsize=8)
def _empty_model(model: ModelSpec) -> nn.Module:
    """Shapes without values. `check` only looks at it, so all rows of a grid share it: building takes the longest."""
    with torch.device("meta"):
        return build_model(model, classes=10)


def only_ours(series: list[Series]) -> bool:
    """Whether datasets, models and initialisers lie in this project: a hash of its code says what all resolves to."""
    if not all(datasets.ours(line.spec.dataset.name) and models.ours(line.spec.model) for line in series):
        return False
    parts = [part for line in series for part in (line.spec.base, line.spec.method) if part]
    names = dict.fromkeys(name for part in parts for name in part.names())
    return all(registry.get(name).__module__.partition(".")[0] == "initializers" for name in names)
