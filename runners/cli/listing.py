"""`vitinit list`: what a grid can name, a table a kind, and all of one."""

import fnmatch
import inspect
import re
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml
from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from vitinit.benchmark.datasets import registry as datasets
from vitinit.benchmark.grids import grid
from vitinit.benchmark.models import registry as models
from vitinit.benchmark.optimizers import registry as optimizers
from vitinit.benchmark.spec import WITH_PATH, Recipe
from vitinit.initializers.errors import unknown_name
from vitinit.runners.options import console, print_table

SIZES = {"image_size": 32, "patch_size": 4}
"""At which a model's fields are shown: a grid gives them, and a few others depend on them."""
COLUMNS = "epochs batch_size lr weight_decay precision"
"""Fields of a recipe that its line has."""


def _summary(entry: Any) -> str:
    """Return an entry on one line: a text itself, the size of a model, columns of a recipe, else its first sentence."""
    if isinstance(entry, str):
        return entry
    if isinstance(entry, Recipe):
        return ", ".join(f"{field} {getattr(entry, field)}" for field in COLUMNS.split())
    if isinstance(entry, BaseModel):
        return str(entry.describe())  # type: ignore[attr-defined]
    sentence = " ".join((entry.__doc__ or "").split()).partition(". ")[0].removesuffix(".") + "."
    return f"{entry.kind}: {sentence}" if hasattr(entry, "kind") else sentence


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


def _datasets() -> Mapping[str, str]:
    texts = {}
    for name in datasets.names():
        dataset = datasets.get(name)
        if name in WITH_PATH:
            texts[name] = f"{name}:{WITH_PATH[name]}: {_summary(type(dataset))}"
            continue
        reason = datasets.unavailable(grid.resolve_dataset({"name": name}), datasets.data_dir(None)) or "available"
        train, test = dataset.images or ("?", "?")
        sizes = f"{dataset.classes} classes, {train} training and {test} test images"
        texts[name] = f"{sizes}; {reason.removeprefix(f'{name} is ')}"
    return texts


KINDS = yaml.safe_load(Path(__file__).with_name("kinds.yaml").read_bytes())
"""Kinds by name: the line below the table, and the registry of those that have one."""
ENTRIES: dict[str, Callable[[], Mapping[str, Any]]] = {
    "datasets": _datasets,
    "models": lambda: {name: grid.resolve_model({"preset": name, **SIZES}) for name in models.presets()},
    "recipes": lambda: {name: grid.resolve_recipe({"name": name}) for name in grid.recipes()},
    "optimizers": optimizers.described,
    "grids": lambda: {name: grid.title(name) for name in grid.names()},
}
"""Functions that return the entries of the others by name. One that is no text is printed whole by its name."""


def list_(
    kind: Annotated[str, typer.Argument(help=", ".join(KINDS))],
    name: Annotated[str | None, typer.Argument(help="Only this one, in full, or names like 'vit*'.")] = None,
) -> None:
    """List what a grid can name."""
    if kind not in KINDS:
        raise unknown_name("kind", kind, KINDS)
    read = ENTRIES.get(kind) or import_module(KINDS[kind]["registry"]).REGISTRY.by_name
    entries, singular = read(), kind.removesuffix("s")
    names = fnmatch.filter(entries, name or "*")
    if not names:
        raise unknown_name(singular, str(name), entries)
    if name and name in entries and not isinstance(entries[name], str):
        lines = "\n".join(_described(entries[name])).splitlines()
    else:
        print_table((singular, "what it is"), [(name, _summary(entries[name])) for name in names])
        lines = KINDS[kind]["hint"].splitlines()
    console.print(*lines, sep="\n")
