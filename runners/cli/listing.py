"""`vitinit list`: what a grid can name, a table a kind, and all of one."""

from __future__ import annotations

import fnmatch
import inspect
import re
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Annotated, Any

import typer
import yaml
from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from vitinit.initializers.errors import unknown_name
from vitinit.runners.options import console, print_table

SIZES = {"image_size": 32, "patch_size": 4}
"""At which a model's fields are shown: a grid gives them, and a few others depend on them."""


def list_(
    kind: Annotated[str, typer.Argument(help=", ".join(KINDS))],
    name: Annotated[str | None, typer.Argument(help="Only this one, in full, or names like 'vit*'.")] = None,
) -> None:
    """List what a grid can name."""
    if kind not in KINDS:
        raise unknown_name("kind", kind, KINDS)
    find, text, hint = KINDS[kind]
    entries, singular = find(), kind.removesuffix("s")
    chosen = fnmatch.filter(entries, name or "*")
    if not chosen:
        raise unknown_name(singular, str(name), entries)
    if name and name in entries and not isinstance(entries[name], str):
        lines = "\n".join(_described(entries[name])).splitlines()
    else:
        print_table((singular, "what it is"), [(each, text(entries[each])) for each in chosen])
        lines = hint.splitlines()
    console.print(*lines, sep="\n")


def _described(entry: BaseModel | type[object]) -> list[str]:
    """Return the fields of a value, or of a class each paragraph of its docstring and each parameter, as a line."""
    if isinstance(entry, BaseModel):
        return [f"{name}: {_yaml(value)}" for name, value in entry]
    paragraphs = re.split(r"\n(?=\n|- |    )", inspect.cleandoc(entry.__doc__ or ""))
    lines = ["\n" * text.startswith("\n") + " ".join(text.split()) for text in paragraphs]
    for name, info in getattr(entry, "model_fields", {}).items():
        default = "(to be given)" if info.is_required() else _yaml(info.get_default(call_default_factory=True))
        lines.append(f"{name} = {default}  ({inspect.formatannotation(info.annotation)})")
    return lines


def _yaml(value: Any) -> str:
    """A value as a grid has it, on one line."""
    text = yaml.safe_dump(to_jsonable_python(value), default_flow_style=True, sort_keys=False, width=10_000)
    return text.removesuffix("...\n").strip()


def _text(documented: object) -> str:
    """The first sentence of a docstring."""
    return " ".join((documented.__doc__ or "").split()).partition(". ")[0].removesuffix(".") + "."


def _registered(home: str) -> Callable[[], Mapping[str, Any]]:
    """Return a function that gives the entries of a registry."""
    return lambda: import_module(f"vitinit.{home}").REGISTRY.by_name()


def _datasets() -> Mapping[str, str]:
    from vitinit.benchmark.datasets import registry
    from vitinit.benchmark.datasets.registry import data_dir
    from vitinit.benchmark.grids import grid
    from vitinit.benchmark.spec import WITH_PATH

    texts = {}
    for name in registry.names():
        dataset = registry.get(name)
        if name in WITH_PATH:
            texts[name] = f"{name}:{WITH_PATH[name]}: {_text(type(dataset))}"
            continue
        reason = registry.unavailable(grid.resolve_dataset({"name": name}), data_dir(None)) or "available"
        train, test = dataset.images or ("?", "?")
        sizes = f"{dataset.classes} classes, {train} training and {test} test images"
        texts[name] = f"{sizes}; {reason.removeprefix(f'{name} is ')}"
    return texts


def _models() -> Mapping[str, BaseModel]:
    from vitinit.benchmark.grids.grid import resolve_model
    from vitinit.benchmark.models import registry

    return {name: resolve_model({"preset": name, **SIZES}) for name in registry.presets()}


def _recipes() -> Mapping[str, BaseModel]:
    from vitinit.benchmark.grids import grid

    return {name: grid.resolve_recipe({"name": name}) for name in grid.recipes()}


def _recipe(recipe: BaseModel) -> str:
    columns = "epochs", "batch_size", "lr", "weight_decay", "precision"
    return ", ".join(f"{field} {getattr(recipe, field)}" for field in columns)


def _optimizers() -> Mapping[str, str]:
    from vitinit.benchmark.optimizers import registry

    return registry.described()


def _grids() -> Mapping[str, str]:
    from vitinit.benchmark.grids import grid

    return {name: grid.title(name) for name in grid.names()}


KINDS: dict[str, tuple[Callable[[], Mapping[str, Any]], Callable[[Any], str], str]] = {
    "initializers": (
        _registered("initializers.registry"),
        lambda cls: f"{cls.kind}: {_text(cls)}",
        "Parameters of one: vitinit list initializers NAME",
    ),
    "datasets": (_datasets, str, "In a grid: datasets: [digits, folder:PATH]"),
    "models": (
        _models,
        lambda spec: spec.describe(),
        "In a grid: model: {preset: vit_tiny, image_size: 32, patch_size: 4}, or any field of it changed, or\n"
        "model: {timm: NAME, img_size: 32}. Every field of a preset: vitinit list models NAME",
    ),
    "recipes": (_recipes, _recipe, "Every field of one: vitinit list recipes NAME"),
    "optimizers": (
        _optimizers,
        str,
        "In a recipe: optimizer: lion, or optimizer: {name: sgd, momentum: 0.9, nesterov: true}",
    ),
    "augmentations": (
        _registered("benchmark.augmentations.registry"),
        _text,
        "In a recipe, after its flip and crop: augment: [trivial_augment, {name: color_jitter, brightness: 0.4}]",
    ),
    "metrics": (
        _registered("benchmark.metrics.registry"),
        _text,
        "Tables of one: vitinit tables --metric NAME",
    ),
    "trackers": (_registered("runners.tracking.tracker"), _text, "With a run: vitinit run GRID --track NAME"),
    "grids": (_grids, str, "Its runs: vitinit plan GRID"),
}
"""Kinds by name: a function that finds the entries by name, one that says what an entry is, and the line below the
table. An entry that is no text is printed whole by `vitinit list KIND NAME`."""
