"""Parts of a run, from the fields that a grid has for them: dataset, model and recipe. Imports no torch itself."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from vitinit.benchmark.augmentations import registry as augmentations
from vitinit.benchmark.datasets import registry as datasets
from vitinit.benchmark.fields import parsed
from vitinit.benchmark.files.yaml_text import read
from vitinit.benchmark.grids.fitting import fact
from vitinit.benchmark.models import registry as models
from vitinit.benchmark.models.family import BaseModelSpec
from vitinit.benchmark.optimizers import registry as optimizers
from vitinit.benchmark.spec import WITH_PATH, DatasetSpec, Recipe, RunSpec, model_spec
from vitinit.initializers.errors import VitinitError, unknown_name

HERE = Path(__file__).parents[1]


@cache
def recipes() -> dict[str, dict[str, Any]]:
    """The recipes that ship with the benchmark, by name, as fields."""
    return {path.stem: read(path) for path in sorted((HERE / "recipes").glob("*.yaml"))}


def resolve_dataset(named: Mapping[str, Any], home: Path = Path()) -> DatasetSpec:
    """A DatasetSpec from its YAML form; `folder:PATH` is short for name `folder` and a path, `hf:NAME` likewise.

    A relative path begins in `home`, the folder of a grid.
    """
    fields = dict(named)
    name = str(fields.get("name"))
    before, colon, path = name.partition(":")
    if colon and before in WITH_PATH:
        if "path" in fields:
            raise VitinitError(f"dataset {name!r}: its path is in the name and beside it; give it once")
        fields |= {"name": before, "path": path}
    spec = parsed(DatasetSpec, fields, f"dataset {name!r}")
    if spec.path and not spec.home and not Path(spec.path).is_absolute():
        spec = spec.model_copy(update={"home": str(home.absolute())})
    datasets.get(spec.name).training_images(spec)
    return spec


def resolve_model(fields: Mapping[str, Any]) -> BaseModelSpec:
    """The spec of a model from a preset (optional) and explicit fields, which win; or of one by its name (`timm`).

    Raises:
        VitinitError: there is no such preset or family, or the family has no such field or value.
    """
    explicit, presets = dict(fields), models.presets()
    preset = explicit.pop("preset", None)
    if named := models.by_name(explicit):
        if preset is not None:
            raise VitinitError(f"model: {named.key} names a model, and so does preset")
        return model_spec(fact(_by_name, explicit))
    if preset is not None:
        if str(preset) not in presets:
            raise unknown_name("model", str(preset), presets)
        explicit = {**presets[str(preset)], **explicit}
    return _checked(explicit)


def _by_name(fields: Mapping[str, Any]) -> dict[str, Any]:
    named = models.by_name(fields)
    assert named
    return _checked(named.of_grid(fields)).model_dump(mode="json")


def _checked(fields: Mapping[str, Any]) -> BaseModelSpec:
    spec = parsed(models.family_of(fields), fields, "model")
    spec.check()
    return spec


def resolve_recipe(named: Mapping[str, Any]) -> Recipe:
    """A Recipe by name, with fields overridden.

    Raises:
        VitinitError: unknown recipe or a field that is not valid.
    """
    name = str(named.get("name"))
    if name not in recipes():
        raise unknown_name("recipe", name, recipes())
    recipe = parsed(Recipe, {**recipes()[name], **named}, f"recipe {name!r}")
    try:
        optimizers.check(recipe)
        return recipe.model_copy(update={"augment": tuple(map(augmentations.resolve, recipe.augment))})
    except VitinitError as error:
        raise VitinitError(f"recipe {name!r}: {error}") from None


def check_recipe(spec: RunSpec) -> None:
    """Refuse what does not go with the dataset, where that is known before it is read.

    Raises:
        VitinitError: the dataset has masks, and the model has no classifier for each token, or the recipe changes
            images in a way that masks do not follow; the recipe crops images in a way that is for another kind of
            dataset, which would be passed over in silence; or it has a batch that is larger than the dataset, or
            padding wider than its images.
    """
    recipe, dataset = spec.recipe, datasets.get(spec.dataset.name)
    where, padding, size = f"recipe {recipe.name!r}", recipe.crop_padding, spec.model.image_size
    if dataset.dense:
        recipe.check_masks()
        if not spec.model.dense:
            raise VitinitError(f"a {spec.model.label} cannot classify each patch token, as a dataset with masks asks")
    images = dataset.training_images(spec.dataset)
    if images is not None and recipe.batch_size > images:
        raise VitinitError(f"{where}: batch_size {recipe.batch_size} is more than the {images} training images")
    if padding > size:
        raise VitinitError(f"{where}: crop_padding {padding} is more than image_size {size}: a crop could miss it")
    if padding and (dataset.streamed or recipe.crops):
        raise VitinitError(f"{where}: crop_padding does not go with crop_scale or crop_pct, nor with imagenet")
