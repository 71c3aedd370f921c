"""Resolving a grid: every default filled in, every method asked whether it fits its model. Imports no torch itself."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from vitinit.benchmark.datasets import registry as datasets
from vitinit.benchmark.grids.fitting import Fit, fit
from vitinit.benchmark.grids.parts import resolve_dataset, resolve_recipe
from vitinit.benchmark.grids.schema import Block, GridFile, Parts, Row, Series, SweptBlock, with_fields
from vitinit.benchmark.models import registry as models
from vitinit.benchmark.models.family import BaseModelSpec
from vitinit.benchmark.spec import DatasetSpec, RunSpec
from vitinit.initializers.errors import BrokenFile, VitinitError, explain, unknown_name


def resolve(content: GridFile, seeds: list[int] | None, study: str) -> list[Series]:
    """The runs of a grid in table order, each row on each dataset and length as one series of seeds.

    Where blocks have different models, a row need not fit all of them: it is skipped where it does not.

    Raises:
        VitinitError: a run that could not be carried out, or a row that fits no block; the message names the block or
            the row. A file that cannot be used (of a dataset, say) is blamed on neither.
    """
    for load in (datasets.names, models.families):
        load()  # what is wrong with a file is not wrong with a block
    series = []
    fits: dict[str, Fit] = {}
    for number, block in enumerate(content.blocks, 1):
        try:
            over = block.over if isinstance(block, SweptBlock) else Parts()
            resolve_recipe(with_fields(block.recipe, over.recipe))
            found = [resolve_dataset(dataset) for dataset in block.datasets]
            if not all(row.model for row in content.rows.values()):
                resolve_model(with_fields(block.model, over.model))
        except VitinitError as error:
            raise VitinitError(f"grid {study!r}, block {number}: {error}") from None
        for dataset in found:
            for label, row in content.rows.items():
                where = f"grid {study!r}, row {label!r}"
                series.append(_resolve_series(label, row, dataset, block, seeds or block.seeds, where, fits))
    for label in content.rows:
        misfits = [line.misfit for line in series if line.row == label + line.told]
        if all(misfits):
            raise VitinitError(f"grid {study!r}, row {label!r}: {misfits[0]}")
    return series


def _resolve_series(
    label: str, row: Row, dataset: DatasetSpec, block: Block, seeds: list[int], where: str, fits: dict[str, Fit]
) -> Series:
    try:
        told = _told(row, block) if isinstance(block, SweptBlock) else ""
        row = _set(row, block.over) if isinstance(block, SweptBlock) else row
        model = resolve_model(with_fields(block.model, row.model))
        question = repr((model, row.base, row.method))
        if question not in fits:
            fits[question] = fit(model, row.base, row.method)
        answer = fits[question]
        recipe = resolve_recipe(with_fields(block.recipe, row.recipe))
        spec = RunSpec(
            dataset=dataset, model=model, base=answer.base, method=answer.method, recipe=recipe, seed=seeds[0]
        )
        check_recipe(spec)
        return Series(row=label + told, spec=spec, seeds=seeds, told=told, misfit=answer.misfit, sources=answer.sources)
    except ValidationError as error:
        raise explain(error, where) from None
    except BrokenFile:
        raise
    except VitinitError as error:
        raise VitinitError(f"{where}: {error}") from None


def _set(row: Row, over: Parts) -> Row:
    """The row with fields that win over its own; those of a method, or base, that has them."""
    base, method = with_fields(row.base, _having(row.base, over.base)), row.method
    method = method and with_fields(method, _having(method, over.method))
    model, recipe = {**row.model, **over.model}, {**row.recipe, **over.recipe}
    return row.model_copy(update={"base": base, "method": method, "model": model, "recipe": recipe})


def _having(part: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of parameters that an initialiser has, or as `of.NAME` the one that it wraps: a placebo follows."""
    from vitinit.initializers import registry

    has = registry.get(str(part["name"])).model_fields if values else {}
    own = {name: value for name, value in values.items() if name.partition(".")[0] in has}
    of = part.get("of")
    inner = _having({"name": of} if isinstance(of, str) else of, values) if of else {}
    return {f"of.{name}": value for name, value in inner.items() if name not in own} | own


def _told(row: Row, block: SweptBlock) -> str:
    """End of the label of a row whose method is swept: `, factor 0.5`."""
    having = _having(row.method, block.over.method) if row.method else {}
    its = {name.removeprefix("of."): value for name, value in having.items()}
    return "".join(f", {name} {_in_words(its[name])}" for name in block.told if name in its)


def _in_words(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def resolve_model(fields: Mapping[str, Any]) -> BaseModelSpec:
    """The spec of a model from a preset (optional) and explicit fields, which win; or of one by its name (`timm`).

    Raises:
        VitinitError: there is no such preset or family, or the family has no such field or value.
    """
    explicit, presets = dict(fields), models.presets()
    preset = explicit.pop("preset", None)
    if arch := models.by_name(explicit):
        if preset is not None or explicit.get("arch", arch) != arch:
            raise VitinitError(f"model: {arch} names a model, and so does {'arch' if preset is None else 'preset'}")
        explicit = models.get(arch).of_grid(explicit)
    if preset is not None and str(preset) not in presets:
        raise unknown_name("model", str(preset), presets)
    try:
        return models.spec_of({**presets.get(str(preset), {}), **explicit}).resolved()
    except ValidationError as error:
        raise explain(error, "model") from None


def check_recipe(spec: RunSpec) -> None:
    """Refuse what does not go with the dataset, where that is known before it is read.

    Raises:
        VitinitError: the dataset has masks, and the model has no classifier for each token, or the recipe changes
            images in a way that masks do not follow; the recipe crops images in a way that is for another kind of
            dataset, which would be passed over in silence; or it has a batch that is larger than the dataset, or
            padding wider than its images.
    """
    recipe, dataset = spec.recipe, datasets.get(spec.dataset.name)
    if dataset.dense:
        spec.model.check_dense()
        recipe.check_masks()
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
    if dataset.streamed and recipe.crop_padding:
        raise VitinitError(f"recipe {recipe.name!r}: {spec.dataset.name} has no crop_padding, it has crop_scale")
    if recipe.crops and recipe.crop_padding:
        raise VitinitError(f"recipe {recipe.name!r}: crop_padding does not go with crop_scale or crop_pct")
