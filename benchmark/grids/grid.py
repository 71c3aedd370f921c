"""Grids: a YAML file of (datasets x rows x seeds) blocks becomes a list of fully resolved runs."""

import itertools
import json
import math
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cache
from hashlib import sha256
from importlib.metadata import entry_points, version
from pathlib import Path
from typing import Any

from vitinit.benchmark.augmentations import registry as augmentations
from vitinit.benchmark.datasets import registry as datasets
from vitinit.benchmark.fields import is_folder_name, parsed, spelled
from vitinit.benchmark.files.atomic import write_with_folder
from vitinit.benchmark.files.yaml_text import read
from vitinit.benchmark.grids.schema import Cell, Grid, GridFile
from vitinit.benchmark.models import registry as models
from vitinit.benchmark.models.build import without_values
from vitinit.benchmark.optimizers import registry as optimizers
from vitinit.benchmark.settings import column_names, columns
from vitinit.benchmark.spec import WITH_PATH, DatasetSpec, InitializerSpec, Recipe, RunSpec, model_spec
from vitinit.initializers import plugins
from vitinit.initializers.errors import BrokenFile, VitinitError, unknown_name

HERE = Path(__file__).parents[1]
PARTS = ("dataset", "model", "recipe")
MOST_RUNS = 100_000
POOLED = ("length", "convit-anatomy")
"""Grids that registered intervals and tests with the noise of all rows; a test of spreads before a test is one more
choice, so no new grid has them."""
Fields = Mapping[str, Any]
"""Fields of a grid, or of a part of one, by name."""
Values = dict[str, dict[str, Any]]
"""Values that a sweep or `--set` gives to fields, by part of a run."""


def names() -> list[str]:
    """Names of the grids that ship with the benchmark."""
    return sorted(path.stem for path in (HERE / "grids").glob("*.yaml"))


def title(name: str) -> str:
    """Return the title of a shipped grid."""
    return str(read(HERE / "grids" / f"{name}.yaml")["title"])


def load(name_or_path: str, seeds: list[int] | None = None, fixed: Fields | None = None) -> Grid:
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
    return resolve(read(path), path, seeds, fixed)


def resolve(content: Fields, path: Path, seeds: list[int] | None = None, fixed: Fields | None = None) -> Grid:
    """Resolve every run of the content of a grid's file, which need not be written yet: see `load`."""
    where = f"grid file {path}" if path.is_file() else f"grid {path.stem!r}"
    code = {part: _with_content(content[part], path.parent) for part in ("rows", "blocks") if part in content}
    file = parsed(GridFile, {**content, **code}, where)
    if "pooled" in (file.analysis.interval, file.analysis.test) and path.stem not in POOLED:
        raise VitinitError(f"{where}: analysis: pooled is for {' and '.join(POOLED)} alone; write t")
    datasets.names()  # what is wrong with a file is not wrong with a block
    models.families()
    study = spelled(path.stem)
    first_cells = [first for number in range(len(file.blocks)) for first in _of_block(file, number, fixed or {}, path)]
    cells = _cells(first_cells, seeds, study)
    return Grid(study, file.title, cells, file, len(_cells(first_cells, None, study) if seeds else cells))


def _with_content(value: Any, folder: Path) -> Any:
    """Return the content of a grid in which every name of a file has that file's content."""
    if isinstance(value, dict):
        return {key: _with_content(field, folder) for key, field in value.items()}
    if isinstance(value, list):
        return [_with_content(item, folder) for item in value]
    return plugins.pinned(value, folder) if isinstance(value, str) and plugins.in_a_file(value) else value


def _of_block(file: GridFile, number: int, fixed: Fields, path: Path) -> Iterator[tuple[Cell, list[int]]]:
    """Each row on each dataset, for every combination of what is swept, in table order.

    Yields the cell at the first seed, without its column, and the seeds of the block.
    """
    block, where = file.blocks[number], f"grid {path.stem!r}, block {number + 1}"
    number_of_runs = math.prod(map(len, (*block.sweep.values(), block.datasets, file.rows, block.seeds)))
    if number_of_runs > MOST_RUNS:
        raise VitinitError(f"{where}: {number_of_runs:,} runs; a block has at most {MOST_RUNS:,}")
    try:
        for chosen in itertools.product(*block.sweep.values()):
            place = where
            swept, given = _by_part(dict(zip(block.sweep, chosen, strict=True))), _by_part(fixed)
            values = {part: swept[part] | given[part] for part in PARTS}
            specs = [resolve_dataset({**dataset, **values["dataset"]}, path.parent) for dataset in block.datasets]
            for dataset, (label, row) in itertools.product(specs, file.rows.items()):
                place = f"{where}, row {label!r}"
                model = resolve_model(_with(block.model, {**row.model, **values["model"]}))
                recipe = resolve_recipe(_with(block.recipe, {**row.recipe, **values["recipe"]}))
                base, method, misfit, sources, remarks = kept_answer(
                    fitted, model.model_dump(mode="json"), row.base, row.method
                )
                spec = RunSpec(
                    dataset=dataset, model=model, base=base, method=method, recipe=recipe, seed=block.seeds[0]
                )
                check_recipe(spec)
                yield Cell(label, spec, misfit, sources=sources, remarks=remarks), block.seeds
    except BrokenFile:
        raise
    except VitinitError as error:
        raise VitinitError(f"{place}: {error}") from None


def _by_part(given: Fields) -> Values:
    values: Values = {part: {} for part in PARTS}
    for name, value in given.items():
        part, _, field = name.replace(".params.", ".").partition(".")
        if part not in PARTS or not field:
            raise VitinitError(f"{name!r} is no field: write PART.FIELD, as recipe.lr; parts: {', '.join(PARTS)}")
        if field in values[part]:
            raise VitinitError(f"{name} is given twice, under two names; give it once")
        values[part][field] = value
    return values


def _with(part: Fields, over: Fields) -> dict[str, Any]:
    """Return a part of a run with other values of its fields; `optimizer.momentum` is a parameter of its optimiser."""
    result = dict(part)
    for name, value in sorted(over.items(), key=lambda field: field[0].count(".")):
        outer, dot, inner = name.partition(".")
        before = result.get(outer) or {}
        result[outer] = _with({"name": before} if isinstance(before, str) else before, {inner: value}) if dot else value
    return result


def _cells(first_cells: list[tuple[Cell, list[int]]], seeds: list[int] | None, study: str) -> list[Cell]:
    """The runs of all seeds; one that two blocks name is there once."""
    runs = {number: (cell.row, cell.spec) for number, (cell, _) in enumerate(first_cells)}
    column = columns(runs, {number for number, (cell, _) in enumerate(first_cells) if not cell.misfit})
    shown = column_names({column[number]: cell.spec.dataset for number, (cell, _) in enumerate(first_cells)})
    cells: dict[str, Cell] = {}
    for number, (first, seeds_of_block) in enumerate(first_cells):
        first = replace(first, column=column[number], name=shown[column[number]])
        for seed in seeds or seeds_of_block:
            cell = replace(first, spec=first.spec.model_copy(update={"seed": seed}))
            other = cells.setdefault(cell.run_id, cell)
            if other.row != cell.row:
                raise VitinitError(f"grid {study!r}, row {cell.row!r}: is the same run as row {other.row!r}")
    return list(cells.values())


# --- dataset, model and recipe of a run, from the fields that a grid has for them ---


@cache
def recipes() -> dict[str, dict[str, Any]]:
    """The recipes that ship with the benchmark, by name, as fields."""
    return {path.stem: read(path) for path in sorted((HERE / "recipes").glob("*.yaml"))}


def resolve_dataset(named: Fields, home: Path = Path()) -> DatasetSpec:
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
    if "path" in fields and not fields.get("home") and not Path(str(fields["path"])).is_absolute():
        fields["home"] = str(home.absolute())
    spec = parsed(DatasetSpec, fields, f"dataset {name!r}")
    dataset = datasets.get(spec.name)
    dataset.training_images(spec)
    if dataset.images and spec.train_size == dataset.images[0] - (spec.val_size or 0):
        raise VitinitError(f"dataset {spec.label}: train_size {spec.train_size} is all of it: leave it out")
    return spec


def resolve_model(fields: Fields) -> models.BaseModelSpec:
    """The spec of a model from a preset (optional) and explicit fields, which win; or of one by its name (`timm`).

    Raises:
        VitinitError: there is no such preset or family, or the family has no such field or value.
    """
    explicit, presets = dict(fields), models.presets()
    preset = explicit.pop("preset", None)
    if named := models.by_name(explicit):
        if preset is not None:
            raise VitinitError(f"model: {named.key} names a model, and so does preset")

        def of_name(fields: Fields) -> dict[str, Any]:
            return _checked(named.of_grid(fields)).model_dump(mode="json")

        return model_spec(kept_answer(of_name, explicit))
    if preset is not None:
        if str(preset) not in presets:
            raise unknown_name("model", str(preset), presets)
        explicit = {**presets[str(preset)], **explicit}
    return _checked(explicit)


def _checked(fields: Fields) -> models.BaseModelSpec:
    spec = parsed(models.family_of(fields), fields, "model")
    spec.check()
    return spec


def resolve_recipe(named: Fields) -> Recipe:
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
    if recipe.residuals == "half" and not spec.model.attention_maps:
        raise VitinitError(f"{where}: residuals half is for transformers of ours, and a {spec.model.label} is none")
    if padding > size:
        raise VitinitError(f"{where}: crop_padding {padding} is more than image_size {size}: a crop could miss it")
    if padding and (dataset.streamed or recipe.crops):
        raise VitinitError(f"{where}: crop_padding does not go with crop_scale or crop_pct, nor with imagenet")


# --- whether base and method fit a model: torch and timm are imported only to ask ---


def fitted(model: Fields, base: Fields, method: Fields | None) -> tuple[Any, ...]:
    """Return base and method with defaults filled in, why they do not fit, their sources, remarks; all as JSON."""
    from vitinit.initializers.whole_model import set_alike

    spec, first = model_spec(model), resolve_initializer(base, "base")
    second = resolve_initializer(method, "method") if method else None
    why = misfit(spec, first.model_dump_json())
    if second and not why:
        why = misfit(spec, second.model_dump_json())
    remarks = [] if why else set_alike(without_values(spec))
    return first.model_dump(), second and second.model_dump(), why, sources(first, second), remarks


def resolve_initializer(named: Fields, kind: Any = None) -> InitializerSpec:
    """An InitializerSpec with defaults filled in, so that the run's identity does not depend on them."""
    from vitinit.initializers import registry

    name = str(named["name"])
    return InitializerSpec(
        name=name, params=registry.build_named({**named, "name": name}, kind).model_dump(mode="json")
    )


def sources(base: InitializerSpec, method: InitializerSpec | None) -> dict[str, str]:
    """The hash of the source file of each initialiser, those inside another (`of`) too, by name."""
    from vitinit.initializers import registry

    names = [name for initializer in (base, method) if initializer for name in initializer.names()]
    return {name: source for name in names if (source := registry.source_hash(registry.get(name)))}


@cache
def misfit(model: models.BaseModelSpec, initializer_json: str) -> str:
    """Return why a base or method does not fit the model; empty where it does. Nothing is allocated or trained.

    It calls the model as tables do, by its family, and not by the class that the library has for several.
    """
    from vitinit.initializers import registry

    empty = without_values(model)
    try:
        registry.build(**json.loads(initializer_json)).check(empty)
    except VitinitError as error:
        return str(error) if model.by_name else str(error).replace(type(empty).__name__, model.label)
    return ""


# --- what takes torch to find out, kept on disk: who plans a grid again imports none ---


def kept_answer(find_out: Callable[..., Any], *given: Any) -> Any:
    """Return what a function finds out of JSON values: once for this code and these libraries.

    What depends on code of others, in files, in installed packages or registered in this process, is found out anew.
    """
    key, folder = f"{find_out.__name__} {given!r}", _answers_folder()
    if not folder or plugins.OF_OTHERS or re.search(r"\w:\w", key):
        return find_out(*given)
    path = folder / f"{plugins.short_hash(key.encode())}.json"
    with suppress(OSError, ValueError):
        return json.loads(path.read_bytes())
    answer = find_out(*given)
    with suppress(OSError):
        write_with_folder(path, json.dumps(answer).encode())
    return answer


@cache
def _answers_folder() -> Path | None:
    """Return the folder of answers by this code and these libraries; None where installed packages add to it."""
    if entry_points().groups & {*plugins.GROUPS}:
        return None
    digest = sha256(f"{HERE} {sys.version} {version('torch')} {version('timm')}".encode())
    # what a fit depends on; what is recorded or read, and how, is not in it
    for pattern in ("initializers/**/*", "benchmark/models/**/*", "benchmark/grids/*.py", "benchmark/*.*"):
        for file in sorted(HERE.parent.glob(pattern)):
            if file.is_file() and file.suffix != ".pyc":
                digest.update(file.read_bytes())
    folder = f"vitinit/facts-{digest.hexdigest()[:16]}"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", folder)
