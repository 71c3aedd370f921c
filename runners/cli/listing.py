"""`vitinit list`: what a grid can name, a table a kind, and all of one."""

from __future__ import annotations

import fnmatch
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import typer
import yaml
from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from vitinit.initializers.errors import unknown_name
from vitinit.runners.options import console, print_table

SIZES = {"image_size": 32, "patch_size": 4}
"""At which a model's fields are shown: a grid gives them, and a few others depend on them."""


@dataclass(frozen=True)
class Listing:
    """Entries of one kind."""

    texts: Mapping[str, str]
    """What each is, by name."""
    hint: str
    """The line below the table: where the names go, and what else there is."""
    details: Callable[[str], BaseModel | type[BaseModel] | str] | None = None
    """Details that `vitinit list KIND NAME` prints: fields of a value, docstring of a class; None: its row."""


def list_(
    kind: Annotated[str, typer.Argument(help=", ".join(KINDS))],
    name: Annotated[str | None, typer.Argument(help="Only this one, in full, or names like 'vit*'.")] = None,
) -> None:
    """List what a grid can name."""
    if kind not in KINDS:
        raise unknown_name("kind", kind, KINDS)
    listing = KINDS[kind]()
    chosen = fnmatch.filter(listing.texts, name or "*")
    if not chosen:
        raise unknown_name(kind.removesuffix("s"), str(name), listing.texts)
    if listing.details and name in listing.texts:
        found = listing.details(str(name))
        text = found if isinstance(found, str) else _values(found) if isinstance(found, BaseModel) else _class(found)
        console.print(*text.splitlines(), sep="\n")
        return
    print_table((kind.removesuffix("s"), "what it is"), [(each, listing.texts[each]) for each in chosen])
    console.print(*listing.hint.splitlines(), sep="\n")


def _values(fields: BaseModel) -> str:
    return "\n".join(f"{name}: {_yaml(value)}" for name, value in fields)


def _class(cls: type[BaseModel]) -> str:
    """Docstring, a line a paragraph or item, then a line for each parameter with its type and default."""
    paragraphs = re.split(r"\n(?=\n|- |    )", inspect.cleandoc(cls.__doc__ or ""))
    lines = ["\n" * text.startswith("\n") + " ".join(text.split()) for text in paragraphs]
    for name, info in cls.model_fields.items():
        default = "(to be given)" if info.is_required() else _yaml(info.get_default(call_default_factory=True))
        lines.append(f"{name} = {default}  ({inspect.formatannotation(info.annotation)})")
    return "\n".join(lines)


def _yaml(value: Any) -> str:
    """A value as a grid has it, on one line."""
    text = yaml.safe_dump(to_jsonable_python(value), default_flow_style=True, sort_keys=False, width=10_000)
    return text.removesuffix("...\n").strip()


def _text(documented: object) -> str:
    """The first sentence of a docstring."""
    return " ".join((documented.__doc__ or "").split()).partition(". ")[0].removesuffix(".") + "."


def _texts(described: Mapping[str, object]) -> dict[str, str]:
    return {name: _text(each) for name, each in described.items()}


def _initializers() -> Listing:
    from vitinit.initializers import registry

    classes = {name: registry.get(name) for name in registry.names()}
    texts = {name: f"{cls.kind}: {_text(cls)}" for name, cls in classes.items()}
    return Listing(texts, "Parameters of one: vitinit list initializers NAME", classes.__getitem__)


def _datasets() -> Listing:
    from vitinit.benchmark.datasets import registry
    from vitinit.benchmark.datasets.load import data_dir
    from vitinit.benchmark.grids import parts
    from vitinit.benchmark.spec import WITH_PATH

    texts = {}
    for name in registry.names():
        dataset = registry.get(name)
        if name in WITH_PATH:
            texts[name] = f"{name}:{WITH_PATH[name]}: {_text(type(dataset))}"
            continue
        reason = registry.unavailable(parts.resolve_dataset({"name": name}), data_dir(None)) or "available"
        train, test = dataset.images or ("?", "?")
        sizes = f"{dataset.classes} classes, {train} training and {test} test images"
        texts[name] = f"{sizes}; {reason.removeprefix(f'{name} is ')}"
    return Listing(texts, "In a grid: datasets: [digits, folder:PATH]")


def _models() -> Listing:
    from vitinit.benchmark.grids.parts import resolve_model
    from vitinit.benchmark.models import registry

    specs = {name: resolve_model({"preset": name, **SIZES}) for name in registry.presets()}
    return Listing(
        {name: spec.describe() for name, spec in specs.items()},
        "In a grid: model: {preset: vit_tiny, image_size: 32, patch_size: 4}, or any field of it changed, or\n"
        "model: {timm: NAME, img_size: 32}. Every field of a preset: vitinit list models NAME",
        specs.__getitem__,
    )


def _recipes() -> Listing:
    from vitinit.benchmark.grids import parts

    recipes = {name: parts.resolve_recipe({"name": name}) for name in parts.recipes()}
    columns = "epochs", "batch_size", "lr", "weight_decay", "precision"
    texts = {n: ", ".join(f"{field} {getattr(recipe, field)}" for field in columns) for n, recipe in recipes.items()}
    return Listing(texts, "Every field of one: vitinit list recipes NAME", recipes.__getitem__)


def _optimizers() -> Listing:
    from vitinit.benchmark.optimizers import registry as optimizers

    hint = "In a recipe: optimizer: lion, or optimizer: {name: sgd, momentum: 0.9, nesterov: true}"
    return Listing(optimizers.described(), hint)


def _augmentations() -> Listing:
    from vitinit.benchmark.augmentations.registry import REGISTRY

    classes = REGISTRY.by_name()
    hint = "In a recipe, after its flip and crop: augment: [trivial_augment, {name: color_jitter, brightness: 0.4}]"
    return Listing(_texts(classes), hint, classes.__getitem__)


def _metrics() -> Listing:
    from vitinit.benchmark.metrics.registry import REGISTRY

    return Listing(_texts(REGISTRY.by_name()), "Tables of one: python -m vitinit.analysis.tables --metric NAME")


def _trackers() -> Listing:
    from vitinit.runners.tracking.registry import REGISTRY

    return Listing(_texts(REGISTRY.by_name()), "With a run: vitinit run GRID --track NAME")


def _grids() -> Listing:
    from vitinit.benchmark.grids import grid

    return Listing({name: grid.title(name) for name in grid.names()}, "Its runs: vitinit plan GRID")


KINDS: dict[str, Callable[[], Listing]] = {
    "initializers": _initializers,
    "datasets": _datasets,
    "models": _models,
    "recipes": _recipes,
    "optimizers": _optimizers,
    "augmentations": _augmentations,
    "metrics": _metrics,
    "trackers": _trackers,
    "grids": _grids,
}
