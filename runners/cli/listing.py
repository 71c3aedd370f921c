"""`vitinit list`: what a grid can name, a table a kind, and all of one."""

from __future__ import annotations

import fnmatch
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Annotated, Any

import typer
import yaml
from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from vitinit.initializers.errors import unknown_name
from vitinit.runners.options import console, print_table

SIZES = {"image_size": 32, "patch_size": 4}
"""At which a model's fields are shown: a grid gives them, and a few others depend on them."""
NUMBERS = "training", "test", "classes", "width", "depth", "heads", "epochs", "batch"
"""Headings of columns that are flush right."""


@dataclass(frozen=True)
class Listing:
    """Entries of one kind."""

    headings: tuple[str, ...]
    rows: Mapping[str, tuple[object, ...]]
    """Cells of the table, by name."""
    hint: str
    """The line below the table: where the names go, and what else there is."""
    details: Callable[[str], BaseModel | type[BaseModel] | str] | None = None
    """Details that `vitinit list KIND NAME` prints: fields of a value, docstring of a class; None: its row."""


def list_(
    kind: Annotated[str, typer.Argument(help=", ".join(KINDS))],
    name: Annotated[str | None, typer.Argument(help="Only this one, in full, or names like 'vit*'.")] = None,
) -> None:
    """List what a grid can name; `fits`: which initialiser fits which model family."""
    if kind not in KINDS:
        raise unknown_name("kind", kind, KINDS)
    listing = KINDS[kind]()
    chosen = fnmatch.filter(listing.rows, name or "*")
    if not chosen:
        raise unknown_name(kind.removesuffix("s"), str(name), listing.rows)
    if listing.details and name in listing.rows:
        found = listing.details(str(name))
        text = found if isinstance(found, str) else _values(found) if isinstance(found, BaseModel) else _class(found)
        console.print(*text.splitlines(), sep="\n")
        return
    print_table(listing.headings, [(each, *map(str, listing.rows[each])) for each in chosen], NUMBERS)
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


def _initializers() -> Listing:
    from vitinit.initializers import registry

    rows = {name: (registry.get(name).kind, _text(registry.get(name))) for name in registry.names()}
    hint = "Parameters of one: vitinit list initializers NAME"
    return Listing(("initializer", "kind", "what it is"), rows, hint, registry.get)


def _datasets() -> Listing:
    from vitinit.benchmark.datasets import registry
    from vitinit.benchmark.datasets.load import data_dir
    from vitinit.benchmark.grids import parts
    from vitinit.benchmark.spec import WITH_PATH

    rows = {}
    for name in registry.names():
        dataset = registry.get(name)
        counts = [f"{count:,}" if count else "" for count in (*(dataset.images or (None, None)), dataset.classes)]
        if name in WITH_PATH:
            said = f"{name}:{WITH_PATH[name]}: {_text(type(dataset))}"
        else:
            reason = registry.unavailable(parts.resolve_dataset({"name": name}), data_dir(None))
            said = (reason or "available").removeprefix(f"{name} is ")
        rows[name] = (*counts, said)
    return Listing(("dataset", "training", "test", "classes", ""), rows, "In a grid: datasets: [digits, folder:PATH]")


def _models() -> Listing:
    from vitinit.benchmark.grids.parts import resolve_model
    from vitinit.benchmark.models import registry

    columns = "arch", "width", "depth", "heads"
    rows = {}
    for name, fields in registry.presets().items():
        rest = ", ".join(f"{key} {value}" for key, value in fields.items() if key not in columns)
        rows[name] = (*(fields.get(key, "") for key in columns), rest)
    return Listing(
        ("preset", "family", "width", "depth", "heads", "besides"),
        rows,
        "In a grid: model: {preset: vit_tiny, image_size: 32, patch_size: 4}, or any field of it changed, or\n"
        "model: {timm: NAME, img_size: 32}. Every field of a preset: vitinit list models NAME",
        lambda name: resolve_model({"preset": name, **SIZES}),
    )


def _fits() -> Listing:
    from vitinit.benchmark.grids.fitting import fits

    verdicts = fits()

    def details(name: str) -> str:
        return "\n".join(f"{arch}: {f'no, {misfit}' if misfit else 'yes'}" for arch, misfit in verdicts[name].items())

    rows = {name: tuple("no" if misfit else "yes" for misfit in row.values()) for name, row in verdicts.items()}
    hint = "Asked of the smallest preset. Why: vitinit list fits NAME"
    return Listing(("initializer", *next(iter(verdicts.values()))), rows, hint, details)


def _recipes() -> Listing:
    from vitinit.benchmark.grids import parts

    recipes = {name: parts.resolve_recipe({"name": name}) for name in parts.recipes()}
    columns = "epochs", "batch_size", "lr", "weight_decay", "precision"
    rows = {name: tuple(getattr(recipe, field) for field in columns) for name, recipe in recipes.items()}
    hint = "Every field of one: vitinit list recipes NAME"
    return Listing(("recipe", "epochs", "batch", "lr", "decay", "precision"), rows, hint, recipes.__getitem__)


def _optimizers() -> Listing:
    from vitinit.benchmark.optimizers import registry as optimizers

    rows = {name: (text,) for name, text in optimizers.described().items()}
    hint = "In a recipe: optimizer: lion, or optimizer: {name: sgd, momentum: 0.9, nesterov: true}"
    return Listing(("optimizer", "what it is"), rows, hint)


def _augmentations() -> Listing:
    from vitinit.benchmark.augmentations.registry import REGISTRY

    classes = REGISTRY.by_name()
    rows = {name: (_text(cls),) for name, cls in classes.items()}
    hint = "In a recipe, after its flip and crop: augment: [trivial_augment, {name: color_jitter, brightness: 0.4}]"
    return Listing(("augmentation", "what it does"), rows, hint, classes.__getitem__)


def _metrics() -> Listing:
    from vitinit.benchmark.metrics.registry import REGISTRY

    rows = {name: (", ".join(metric.of), _text(metric)) for name, metric in REGISTRY.by_name().items()}
    hint = (
        "Tables and figures of one: python -m vitinit.analysis.tables --metric NAME\n"
        "That of averaged weights (recipe: {ema: 0.999}) is ema_score"
    )
    return Listing(("metric", "of", "what it is"), rows, hint)


def _trackers() -> Listing:
    from vitinit.runners.tracking.registry import REGISTRY

    rows = {}
    for name, tracker in REGISTRY.by_name().items():
        missing = tracker.library and find_spec(tracker.library) is None
        rows[name] = f"no, needs {tracker.library}" if missing else "yes", _text(tracker)
    return Listing(("tracker", "", "what it is"), rows, "With a run: vitinit run GRID --track NAME,NAME")


def _grids() -> Listing:
    from vitinit.benchmark.grids import grid

    return Listing(
        ("grid", "what"), {name: (grid.title(name),) for name in grid.names()}, "Its runs: vitinit plan GRID"
    )


KINDS: dict[str, Callable[[], Listing]] = {
    "initializers": _initializers,
    "datasets": _datasets,
    "models": _models,
    "fits": _fits,
    "recipes": _recipes,
    "optimizers": _optimizers,
    "augmentations": _augmentations,
    "metrics": _metrics,
    "trackers": _trackers,
    "grids": _grids,
}
