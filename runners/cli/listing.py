"""`vitinit list`: what a grid can name. Imports torch only where initialisers were not listed before."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer
import yaml
from pydantic import BaseModel
from rich import box
from rich.table import Table
from rich.text import Text

import benchmark
import initializers
from benchmark.files import kept
from initializers import plugins
from initializers.errors import plain, unknown_name
from runners.cli.options import console
from runners.terminal.markup import safe

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

    from benchmark.grids.fits import Verdict
    from benchmark.spec import Recipe
    from initializers.registry import Initializer

KINDS = ("initializers", "datasets", "models", "fits", "recipes", "grids")
CODE = (Path(initializers.__path__[0]), Path(__file__))
"""What the list of initialisers depends on, where no other package has any."""
COMMON = ("arch", "width", "depth", "heads")
"""Fields of a model that have a column of their own."""


def list_(
    kind: Annotated[
        str,
        typer.Argument(help="initializers, datasets, models, fits, recipes or grids"),
    ],
    name: Annotated[str | None, typer.Argument(help="This one only; of a recipe, every field.")] = None,
) -> None:
    """List what a grid can name; `fits`: which initialiser fits which model family."""
    if kind not in KINDS:
        raise unknown_name("kind", kind, KINDS)
    {
        "initializers": _initializers,
        "datasets": _datasets,
        "models": _models,
        "fits": _fits,
        "recipes": _recipes,
        "grids": _grids,
    }[kind](name)


def _chosen(kind: str, name: str | None, names: list[str]) -> list[str]:
    if name is not None and name not in names:
        raise unknown_name(kind, name, names)
    return names if name is None else [name]


class Initializers(BaseModel):
    """What is listed of each initialiser, by name: its kind, what it does, and a line a parameter with its indent."""

    lines: dict[str, list[tuple[int, str]]]


def _initializers(name: str | None) -> None:
    lines = _described().lines
    for found in _chosen("initializer", name, list(lines)):
        (indent, first), *rest = lines[found]
        _line(first, indent, bold=len(found))
        for indent, text in rest:
            _line(text, indent)


def _described() -> Initializers:
    """Kept until our code changes; where a package names some of its own, whose code may change too, made anew."""
    theirs, key = plugins.installed(plugins.INITIALIZERS), kept.key(CODE, "")
    found = None if theirs else kept.read("lists", key, Initializers)
    if found is None:
        from initializers import registry

        found = Initializers(lines={each: _description(registry.get(each)) for each in registry.names()})
        if not theirs:
            kept.write("lists", key, found)
    return found


def _description(cls: type[Initializer]) -> list[tuple[int, str]]:
    from initializers import registry

    lines = [(0, f"{cls.name} ({cls.kind}): {(cls.__doc__ or '').splitlines()[0]}")]
    for field, info in cls.model_fields.items():
        kinds = _alternatives(info)
        choices = [str(choice) for choice in registry.choices(info.annotation)] or list(kinds)
        default = info.get_default(call_default_factory=True)
        shown = default.model_dump()["name"] if kinds else default
        lines.append((4, f"{field} = {shown}" + (f"  ({' | '.join(choices)})" if choices else "")))
        for kind, fields in kinds.items():
            lines.append((8, f"{kind}: {', '.join(f'{key} = {value}' for key, value in fields.items())}"))
    return lines


def _alternatives(info: FieldInfo) -> dict[str, dict[str, Any]]:
    """Of a parameter that is one of several models, told apart by their names: each with its own fields' defaults."""
    if not info.discriminator:
        return {}
    models = [part for part in get_args(info.annotation) if issubclass(part, BaseModel)]
    fields = [{key: its.get_default(call_default_factory=True) for key, its in m.model_fields.items()} for m in models]
    return {its.pop("name"): its for its in fields}


def _line(text: str, indent: int = 4, bold: int = 0) -> None:
    """One entry, broken between words at the terminal's width, its further lines indented; `bold` letters first."""
    lead, further = " " * indent, " " * (indent + 4)
    text = "".join(char if char.isprintable() else "?" for char in text)
    for line in textwrap.wrap(text, max(console.width, 20), initial_indent=lead, subsequent_indent=further):
        shown = Text(line)
        shown.stylize("bold", 0, bold)
        console.print(shown, soft_wrap=True)
        bold = 0


def _datasets(name: str | None) -> None:
    from benchmark.datasets import registry
    from benchmark.datasets.load import data_dir
    from benchmark.grids import parts

    for found in _chosen("dataset", name, registry.names()):
        if found == "folder":
            _line(f"{found}:PATH  {(type(registry.get(found)).__doc__ or '').splitlines()[0]}", indent=0)
        else:
            reason = registry.unavailable(parts.resolve_dataset({"name": found}), data_dir(None))
            _line(f"{found}  {reason or 'available'}", indent=0)


def _models(name: str | None) -> None:
    from benchmark.models import registry

    presets = registry.presets()
    table = _table("preset", "family", "width", "depth", "heads", "besides", right=("width", "depth", "heads"))
    for found in _chosen("model preset", name, list(presets)):
        fields = presets[found]
        rest = ", ".join(f"{key} {value}" for key, value in fields.items() if key not in COMMON)
        table.add_row(*(safe(str(text)) for text in (found, *(fields.get(key, "") for key in COMMON), rest)))
    console.print(table)
    console.print("A grid gives image_size and patch_size, and may change any field: model: {preset: vit_tiny, ...}")


def _fits(name: str | None) -> None:
    """A table of all; of one initialiser or family, a line for each of the others, with the reason."""
    from benchmark.grids.fits import IMAGE_SIZE, PATCH_SIZE, fits
    from benchmark.models.registry import families

    found = fits()
    tables = {"base": found.base, "method": found.method}
    archs = list(next(iter(found.base.values())))
    notes: dict[str, int] = {}
    for kind, verdicts in tables.items():
        table = _table(kind, *archs)
        for initializer, row in verdicts.items():
            table.add_row(initializer, *(_cell(row[arch], families()[arch].label, notes) for arch in archs))
            for arch in archs:
                if name in (initializer, arch):
                    _line(f"{arch if name == initializer else initializer}  {_says(row[arch])}", indent=0)
        if name is None:
            console.print(table)
            console.print()
    if name is not None:
        _chosen("initializer or model family", name, [*found.base, *found.method, *archs])
        return
    for note, number in notes.items():
        _line(f"{number}  {note}", indent=0)
    _line(
        f"Asked of the smallest preset of each family, at {IMAGE_SIZE} pixels with patch {PATCH_SIZE}, with default "
        "parameters. A plan asks every model of its grid. Reasons in full: vitinit list fits NAME",
        indent=0,
    )


def _says(of: Verdict) -> str:
    if of.misfit:
        return f"no: {of.misfit}"
    return f"yes; ours, in no paper: {of.ours}" if of.ours else f"yes; {of.condition}" if of.condition else "yes"


def _cell(of: Verdict, label: str, notes: dict[str, int]) -> str:
    """Yes or no, and the number of a note; what several cells say in the same words has one number."""
    if not (of.misfit or of.ours or of.condition):
        return "yes"
    note = re.sub(r"^((base|method) '\w+':? )+", "", of.misfit.replace(label, "it")) or _says(of).partition("; ")[2]
    return f"{'no' if of.misfit else 'yes'} {notes.setdefault(note, len(notes) + 1)}"


def _recipes(name: str | None) -> None:
    from benchmark.grids import parts

    names = _chosen("recipe", name, list(parts.recipes()))
    recipes = {found: parts.resolve_recipe({"name": found}) for found in names}
    if name is not None:
        console.print(
            safe_yaml(recipes[name].model_dump(mode="json", exclude={"name"})), end="", markup=False, soft_wrap=True
        )
        return
    table = _table("recipe", "epochs", "batch", "lr", "decay", "precision", "augmentation", right=("epochs", "batch"))
    for found, recipe in recipes.items():
        numbers = str(recipe.epochs), str(recipe.batch_size), f"{recipe.lr:g}", f"{recipe.weight_decay:g}"
        table.add_row(safe(found), *numbers, recipe.precision, safe(_augmentation(recipe)))
    console.print(table)
    console.print("Every field of one: vitinit list recipes NAME")


def safe_yaml(fields: dict[str, Any]) -> str:
    """A mapping as YAML with printable text."""
    text = yaml.safe_dump(fields, sort_keys=False, default_flow_style=None)
    return "\n".join(plain(line) for line in text.splitlines()) + "\n"


def _augmentation(recipe: Recipe) -> str:
    """Those that are on, by their fields' names."""
    fields = "crop_padding", "crop_scale", "hflip", "rand_augment", "mixup", "cutmix", "random_erasing"
    found = {name: getattr(recipe, name) for name in fields}
    return ", ".join(name.replace("_", " ") for name, value in found.items() if value) or "none"


class Grids(BaseModel):
    """What is listed of each shipped grid, by name: how many runs, and its title."""

    lines: dict[str, tuple[int, str]]


def _grids(name: str | None) -> None:
    table = _table("grid", "runs", "what", right=("runs",))
    lines = _counted().lines
    for found in _chosen("grid", name, list(lines)):
        runs, title = lines[found]
        table.add_row(safe(found), str(runs), safe(title))
    console.print(table)


def _counted() -> Grids:
    """Kept until our code or a grid changes: to count runs is to resolve them all."""
    key = kept.key((Path(benchmark.__path__[0]), Path(initializers.__path__[0])), "grids")
    found = kept.read("lists", key, Grids)
    if found is None:
        from benchmark.grids import grid

        loaded = {each: grid.load(each) for each in grid.names()}
        found = Grids(lines={each: (len(one.cells), one.title) for each, one in loaded.items()})
        kept.write("lists", key, found)
    return found


def _table(*headings: str, right: tuple[str, ...] = ()) -> Table:
    """The first column, a name to be copied, is never broken."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="right" if heading in right else "left", no_wrap=number == 0)
    return table
