"""`vitinit list`: what a grid can name. Imports torch only where initialisers were not listed before."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer
import yaml
from pydantic import BaseModel
from pydantic.errors import PydanticInvalidForJsonSchema
from pydantic_core import to_jsonable_python
from rich import box
from rich.table import Table

from vitinit.initializers.errors import VitinitError, printable, unknown_name
from vitinit.runners.options import console

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

    from vitinit.benchmark.grids.fitting import Fit
    from vitinit.benchmark.spec import Recipe
    from vitinit.initializers.registry import Initializer

COMMON = ("arch", "width", "depth", "heads")
"""Fields of a model that have a column of their own."""
SIZES = {"image_size": 32, "patch_size": 4}
"""At which a model's fields are shown: a grid gives them, and a few others depend on them."""
LIMITS = {"minimum": "at least", "exclusiveMinimum": "above", "maximum": "at most", "exclusiveMaximum": "below"}
TYPES = {"integer": "whole number", "boolean": "true or false", "string": "text", "array": "list", "object": "mapping"}
"""Readable names of JSON types."""


def list_(
    kind: Annotated[
        str,
        typer.Argument(help=", ".join(KINDS)),
    ],
    name: Annotated[str | None, typer.Argument(help="Only this one, in full.")] = None,
) -> None:
    """List what a grid can name; `fits`: which initialiser fits which model family."""
    if kind not in KINDS:
        raise unknown_name("kind", kind, KINDS)
    KINDS[kind](name)


def _chosen(kind: str, name: str | None, names: list[str]) -> list[str]:
    if name is not None and name not in names:
        raise unknown_name(kind, name, names)
    return names if name is None else [name]


def _initializers(name: str | None) -> None:
    from vitinit.initializers import registry

    if name is not None:
        cls = registry.get(name)
        for text in _text(cls):
            _line(text, indent=0, further=2 if text.startswith("- ") else 0)
        for indent, text in _parameters(cls):
            _line(text, indent)
        return
    for found in registry.names():
        (indent, first), *rest = _description(registry.get(found))
        _line(first, indent, bold=len(found))
        for indent, text in rest:
            _line(text, indent)
    _line("All of one, with types and limits: vitinit list initializers NAME", indent=0)


def _first_line(documented: type) -> str:
    return (documented.__doc__ or "").partition("\n")[0]


def _description(cls: type[Initializer]) -> list[tuple[int, str]]:
    from vitinit.initializers import registry

    lines = [(0, f"{cls.name} ({cls.kind}): {_first_line(cls)}")]
    for field, info in cls.model_fields.items():
        kinds = _alternatives(info)
        choices = [_yaml(choice) for choice in registry.choices(info.annotation)] or list(kinds)
        lines.append((4, f"{field} = {_default(info)}" + (f"  ({' | '.join(choices)})" if choices else "")))
        for kind, model in kinds.items():
            its = [f"{key} = {_default(one)}" for key, one in model.model_fields.items() if key != "name"]
            lines.append((8, f"{kind}: {', '.join(its)}"))
    return lines


def _text(cls: type[Initializer]) -> list[str]:
    lines = [f"{cls.name} ({cls.kind})"]
    for paragraph in inspect.cleandoc(cls.__doc__ or "").split("\n\n"):
        lines += ["", *(" ".join(item.split()) for item in re.split(r"\n(?=- |    )", paragraph))]
    return [*lines, ""]


def _parameters(cls: type[BaseModel]) -> list[tuple[int, str]]:
    lines = []
    for field, info in cls.model_fields.items():
        kinds = _alternatives(info)
        allowed = " | ".join(kinds) or _types(cls).get(field, "")
        lines.append((0, f"{field} = {_default(info)}" + (f"  ({allowed})" if allowed else "")))
        for kind, model in kinds.items():
            lines.append((4, f"{kind}:"))
            of = _types(model)
            its = ((key, one) for key, one in model.model_fields.items() if key != "name")
            lines += [(8, f"{key} = {_default(one)}  ({of[key]})") for key, one in its]
    return lines


def _alternatives(info: FieldInfo) -> dict[str, type[BaseModel]]:
    """Return the models that a parameter may be, told apart by their names."""
    if not info.discriminator:
        return {}
    models = [part for part in get_args(info.annotation) if issubclass(part, BaseModel)]
    return {model.model_fields["name"].get_default(): model for model in models}


def _default(info: FieldInfo) -> str:
    default = info.get_default(call_default_factory=True)
    return "(to be given)" if info.is_required() else default.name if info.discriminator else _yaml(default)


def _yaml(value: Any) -> str:
    """A value as a grid has it, on one line."""
    text = yaml.safe_dump(to_jsonable_python(value), default_flow_style=True, sort_keys=False, width=10_000)
    return text.removesuffix("...\n").strip()


def _types(model: type[BaseModel]) -> dict[str, str]:
    """Type and limits of each field; none where a package's own type cannot be described."""
    try:
        schema = model.model_json_schema()
    except PydanticInvalidForJsonSchema:
        return {}
    return {field: _type(one, schema.get("$defs", {})) for field, one in schema.get("properties", {}).items()}


def _type(of: dict[str, Any], models: dict[str, Any]) -> str:
    if "$ref" in of:
        of = models[of["$ref"].rpartition("/")[2]]
        if of.get("type") == "object":
            return str(of.get("description", "mapping")).partition("\n\n")[0].rstrip(".")
    if "anyOf" in of:
        return "; or ".join(_type(one, models) for one in of["anyOf"])
    if "enum" in of or "const" in of:
        return " | ".join(map(_yaml, of.get("enum") or [of["const"]]))
    limits = [f"{word} {of[key]:,}" for key, word in LIMITS.items() if key in of]
    kind = str(of.get("type", "any"))
    return ", ".join((TYPES.get(kind, kind), *limits))


def _line(text: str, indent: int = 4, bold: int = 0, further: int = 4) -> None:
    """One entry, broken between words at the terminal's width, its further lines indented; `bold` letters first."""
    lead, later = " " * indent, " " * (indent + further)
    if not text:
        console.print()
    for line in textwrap.wrap(printable(text), max(console.width, 20), initial_indent=lead, subsequent_indent=later):
        console.styled((line[:bold], "bold"), line[bold:])
        bold = 0


def _datasets(name: str | None) -> None:
    from vitinit.benchmark.datasets import registry
    from vitinit.benchmark.datasets.load import data_dir
    from vitinit.benchmark.grids import parts
    from vitinit.benchmark.spec import WITH_PATH

    numbers = "training", "test", "classes"
    table = _table("dataset", *numbers, "", right=numbers)
    for found in _chosen("dataset", name, registry.names()):
        dataset = registry.get(found)
        counts = [f"{count:,}" if count else "" for count in (*(dataset.images or (None, None)), dataset.classes)]
        if found in WITH_PATH:
            called, said = f"{found}:{WITH_PATH[found]}", _first_line(type(dataset))
        else:
            reason = registry.unavailable(parts.resolve_dataset({"name": found}), data_dir(None))
            called, said = found, (reason or "available").removeprefix(f"{found} is ")
        table.add_row(called, *counts, said)
    console.print(table)


def _models(name: str | None) -> None:
    from vitinit.benchmark.grids.parts import resolve_model
    from vitinit.benchmark.models import registry

    presets = registry.presets()
    if name is not None:
        _chosen("model preset", name, list(presets))
        spec = resolve_model({"preset": name, **SIZES})
        for field in type(spec).model_fields:
            _line(f"{field}: {_yaml(getattr(spec, field))}{'  # a grid gives it' if field in SIZES else ''}", indent=0)
        return
    table = _table("preset", "family", "width", "depth", "heads", "besides", right=("width", "depth", "heads"))
    for found, fields in presets.items():
        rest = ", ".join(f"{key} {value}" for key, value in fields.items() if key not in COMMON)
        table.add_row(found, *(str(fields.get(key, "")) for key in COMMON), rest)
    console.print(table)
    _line("A grid gives image_size and patch_size, and may change any field: model: {preset: vit_tiny, ...}", indent=0)
    _line("Every field of one: vitinit list models NAME", indent=0)
    _line("Any classifier of timm by its name: model: {timm: NAME, ...}; names: vitinit list timm [PATTERN]", indent=0)


def _timm(pattern: str | None) -> None:
    """Print the names of timm's models, of a pattern such as `vit_*` where one is given."""
    from timm import list_models

    names = list_models(pattern or "*")
    if not names:
        raise VitinitError(f"timm has no model {pattern!r}; a pattern such as '*vit*' finds several")
    for name in names:
        _line(name, indent=0)
    _line("In a grid: model: {timm: NAME, img_size: 32, ...}, with arguments of timm.create_model", indent=0)


def _fits(name: str | None) -> None:
    """A table of all; of one initialiser or family, a line for each of the others, with the reason."""
    from vitinit.benchmark.grids.fitting import IMAGE_SIZE, PATCH_SIZE, fits
    from vitinit.benchmark.models.registry import families

    tables = fits()
    archs = list(next(iter(tables["base"].values())))
    notes: dict[str, int] = {}
    for kind, verdicts in tables.items():
        table = _table(kind, *archs)
        for initializer, row in verdicts.items():
            table.add_row(initializer, *(_cell(row[arch], families()[arch].label, notes) for arch in archs))
            for arch in archs:
                if name in (initializer, arch):
                    _line(f"{arch if name == initializer else initializer}  {_says(row[arch])}", indent=0)
        if name is None:
            if console.measure(table, options=console.options.update(width=10_000)).maximum > console.width:
                table.padding = 0  # headings stay whole
            console.print(table)
            console.print()
    if name is not None:
        _chosen("initializer or model family", name, [*tables["base"], *tables["method"], *archs])
        return
    for note, number in notes.items():
        _line(f"{number}  {note}", indent=0)
    _line(
        f"Asked of the smallest preset of each family, at {IMAGE_SIZE} pixels with patch {PATCH_SIZE}, with default "
        "parameters. A plan asks every model of its grid. Reasons in full: vitinit list fits NAME",
        indent=0,
    )


def _says(of: Fit) -> str:
    if of.misfit:
        return f"no: {of.misfit}"
    return f"yes; ours, in no paper: {of.ours}" if of.ours else f"yes; {of.condition}" if of.condition else "yes"


def _cell(of: Fit, label: str, notes: dict[str, int]) -> str:
    """Yes or no, and the number of a note; what several cells say in the same words has one number."""
    if not (of.misfit or of.ours or of.condition):
        return "yes"
    note = (
        re.sub(r"^((base|method) '\w+':? )+", "", re.sub(rf"\b{re.escape(label)}\b", "it", of.misfit))
        or _says(of).partition("; ")[2]
    )
    return f"{'no' if of.misfit else 'yes'} {notes.setdefault(note, len(notes) + 1)}"


def _recipes(name: str | None) -> None:
    from vitinit.benchmark.grids import parts

    names = _chosen("recipe", name, list(parts.recipes()))
    recipes = {found: parts.resolve_recipe({"name": found}) for found in names}
    if name is not None:
        fields = recipes[name].model_dump(mode="json", exclude={"name"})
        optimizer = fields["optimizer"]
        fields["optimizer"] = {"name": optimizer["name"], **optimizer["params"]}
        fields["augment"] = [{"name": each["name"], **each["params"]} for each in fields["augment"]]
        for field in ("optimizer", "schedule"):
            fields[field] = fields[field]["name"] if len(fields[field]) == 1 else fields[field]
        for line in yaml.safe_dump(fields, sort_keys=False, default_flow_style=None).splitlines():
            console.print(line, soft_wrap=True)
        return
    table = _table("recipe", "epochs", "batch", "lr", "decay", "precision", "augmentation", right=("epochs", "batch"))
    for found, recipe in recipes.items():
        numbers = str(recipe.epochs), str(recipe.batch_size), f"{recipe.lr:g}", f"{recipe.weight_decay:g}"
        table.add_row(found, *numbers, recipe.precision, _augmentation(recipe))
    console.print(table)
    console.print("Every field of one: vitinit list recipes NAME")


def _optimizers(name: str | None) -> None:
    """A table of all, or of one."""
    from vitinit.benchmark.optimizers import registry as optimizers

    found = optimizers.described()
    table = _table("optimizer", "what it is")
    for each in _chosen("optimizer", name, list(found)):
        table.add_row(each, found[each])
    console.print(table)
    _line("In a recipe: optimizer: lion, or optimizer: {name: sgd, momentum: 0.9, nesterov: true}", indent=0)


def _augmentations(name: str | None) -> None:
    """A table of all with their parameters; of one, its parameters with types."""
    from vitinit.benchmark.augmentations.registry import REGISTRY
    from vitinit.benchmark.spec import LAST

    found = REGISTRY.by_name()
    if name is not None and name not in LAST:
        _chosen("augmentation", name, list(found))
        _line(f"{name}: {inspect.getdoc(found[name])}", indent=0, bold=len(name))
        for indent, text in _parameters(found[name]):
            _line(text, indent)
        return
    table = _table("augmentation", "parameters", "what it does")
    for each, cls in found.items():
        parameters = ", ".join(f"{field}: {_default(info)}" for field, info in cls.model_fields.items())
        table.add_row(each, parameters, inspect.getdoc(cls))
    for each, (parameter, default) in LAST.items():
        table.add_row(each, f"{parameter}: {default}", "the field of the recipe; at the end of the list")
    console.print(table)
    _line("In a recipe: augment: [crop_padding, hflip, {name: color_jitter, brightness: 0.4}, mixup]", indent=0)


def _metrics(name: str | None) -> None:
    """A table of all metrics, or of one."""
    from vitinit.benchmark.metrics.registry import REGISTRY

    known = REGISTRY.by_name()
    table = _table("metric", "in tables", "of", "what it is")
    for each in _chosen("metric", name, list(known)):
        metric = known[each]
        table.add_row(each, metric.label if metric.percent else "no", ", ".join(metric.of), inspect.getdoc(metric))
    console.print(table)
    _line("Tables and figures of one: python -m analysis.tables --metric NAME", indent=0)
    _line("That of averaged weights (recipe: {ema: 0.999}) is ema_score", indent=0)


def _trackers(name: str | None) -> None:
    """A table of all trackers, or of one, with the library that each needs."""
    from importlib.util import find_spec

    from vitinit.runners.tracking.registry import REGISTRY

    known = REGISTRY.by_name()
    table = _table("tracker", "", "what it is")
    for each in _chosen("tracker", name, list(known)):
        library, text = known[each].library, (inspect.getdoc(known[each]) or "").partition("\n")[0]
        missing = library and find_spec(library) is None
        table.add_row(each, "no" if missing else "yes", f"needs the library {library}: {text}" if missing else text)
    console.print(table)
    _line("With a run: vitinit run GRID --track NAME,NAME", indent=0)


def _augmentation(recipe: Recipe) -> str:
    """Those that are on, by their fields' names."""
    fields = "crop_padding", "crop_scale", "hflip", "rand_augment", "mixup", "cutmix", "random_erasing"
    found = {name: getattr(recipe, name) for name in fields}
    named = [*(name for name, value in found.items() if value), *(each.name for each in recipe.augment)]
    return ", ".join(name.replace("_", " ") for name in named) or "none"


def _grids(name: str | None) -> None:
    from vitinit.benchmark.grids import grid

    table = _table("grid", "what")
    for found in _chosen("grid", name, grid.names()):
        table.add_row(found, grid.title(found))
    console.print(table)
    _line("Runs of one: vitinit plan GRID", indent=0)


def _table(*headings: str, right: tuple[str, ...] = ()) -> Table:
    """The first column, a name to be copied, is never broken."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="right" if heading in right else "left", no_wrap=number == 0, overflow="fold")
    return table


KINDS: dict[str, Callable[[str | None], None]] = {
    "initializers": _initializers,
    "datasets": _datasets,
    "models": _models,
    "timm": _timm,
    "fits": _fits,
    "recipes": _recipes,
    "optimizers": _optimizers,
    "augmentations": _augmentations,
    "metrics": _metrics,
    "trackers": _trackers,
    "grids": _grids,
}
