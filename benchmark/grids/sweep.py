"""Sweeps: fields of a block that take several values become several blocks. Imports no torch."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from vitinit.benchmark.grids.schema import Block, GridFile, Parts, SweptBlock
from vitinit.benchmark.models import registry as models
from vitinit.benchmark.spec import DatasetSpec, Recipe
from vitinit.initializers.errors import VitinitError, unknown_name

ZIP, WITHOUT = "zip", "without"
PARTS = ("dataset", "model", "base", "method", "recipe")
MAX_BLOCKS = 10_000
"""Upper limit of blocks that the sweeps of a grid become."""

Values = dict[str, Any]
"""One value of each swept field, by its full name."""


def expanded(file: GridFile, fixed: Mapping[str, Any]) -> GridFile:
    """Return the grid with a block for each combination of its sweeps, and with fields set.

    A swept or set field wins over that of a row. A field of a method is set in the rows whose method has it.

    Args:
        file: the grid.
        fixed: values by field, in every block: those of `--set`.

    Raises:
        VitinitError: an unknown or ambiguous field, a sweep without values, or values that cannot be zipped.
    """
    if not fixed and not any(block.sweep for block in file.blocks):
        return file
    blocks: list[Block] = []
    for number, block in enumerate(file.blocks, 1):
        try:
            given = {full(name, block, file): value for name, value in fixed.items()}
            for values in combinations(block, file):
                told = tuple(name.partition(".")[2] for name in values.keys() - given if name.startswith("method."))
                blocks.append(_with(block, {**values, **given}, tuple(sorted(told))))
                if len(blocks) > MAX_BLOCKS:
                    raise VitinitError(f"sweep: more than {MAX_BLOCKS:,} combinations")
        except VitinitError as error:
            raise VitinitError(f"block {number}: {error}") from None
    return file.model_copy(update={"blocks": blocks})


def combinations(block: Block, file: GridFile) -> Iterator[Values]:
    """Yield one value of each swept field, for every combination that is not left out.

    Raises:
        VitinitError: as `expanded`, or everything is left out.
    """
    sweep = dict(block.sweep)
    zipped, without = _list(sweep.pop(ZIP, []), ZIP), _list(sweep.pop(WITHOUT, []), WITHOUT)
    axes = [[{full(name, block, file): value} for value in _values(name, given)] for name, given in sweep.items()]
    for group in zipped:
        columns = {full(name, block, file): _values(name, given) for name, given in group.items()}
        lengths = {name: len(values) for name, values in columns.items()}
        if len(set(lengths.values())) > 1:
            said = ", ".join(f"{name} has {number}" for name, number in lengths.items())
            raise VitinitError(f"sweep: zip needs as many values of each field: {said}")
        axes.append([dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)])
    names = [name for axis in axes for name in axis[0]]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise VitinitError(f"sweep: {', '.join(twice)} is there twice")
    rules = [_rule(rule, block, file, names) for rule in without]
    left = 0
    for chosen in itertools.product(*axes):
        values = {name: value for each in chosen for name, value in each.items()}
        if not any(all(values[name] in of for name, of in rule.items()) for rule in rules):
            left += 1
            yield values
    if not left:
        raise VitinitError("sweep: `without` leaves no combination")


def full(name: str, block: Block, file: GridFile) -> str:
    """Return the field's full name: `recipe.lr` of `lr`, `recipe.optimizer.momentum` of `optimizer.momentum`.

    Raises:
        VitinitError: no part of a run has the field, or several have.
    """
    name = name.replace(".params.", ".")
    part, dot, field = name.partition(".")
    known = _fields(block, file)
    if dot and part in PARTS:
        fields = known[part]
        if fields is not None and field.partition(".")[0] not in fields:
            raise unknown_name(f"field of the {part}", field, fields)
        return name
    having = [one for one in PARTS if part in (known[one] or ())]
    if len(having) > 1:
        raise VitinitError(f"{name} is ambiguous: {' or '.join(f'{part}.{name}' for part in having)}")
    if not having and known["model"] is None:
        return f"model.{name}"
    if not having:
        every = {one for fields in known.values() for one in fields or ()}
        raise unknown_name("field", name, every)
    return f"{having[0]}.{name}"


def _fields(block: Block, file: GridFile) -> dict[str, set[str] | None]:
    """Names of the fields of each part; None where any may be given."""
    recipe, dataset = set(Recipe.model_fields) - {"name"}, set(DatasetSpec.model_fields) - {"name"}
    return {
        "dataset": dataset,
        "model": _of_model(block.model),
        "base": _of_initializers(row.base for row in file.rows.values()),
        "method": _of_initializers(row.method for row in file.rows.values() if row.method),
        "recipe": recipe,
    }


def _of_model(model: Mapping[str, Any]) -> set[str] | None:
    if models.by_name(model):  # any argument of its constructor
        return None
    preset = models.presets().get(str(model.get("preset")), {})
    family = models.families().get(str({**preset, **model}.get("arch", models.DEFAULT)))
    return {*family.model_fields, "preset"} if family else None


def _of_initializers(parts: Iterable[Mapping[str, Any]]) -> set[str]:
    from vitinit.initializers import registry

    fields: set[str] = set()
    for part in parts:
        fields |= set(registry.get(str(part["name"])).model_fields)
    return fields


def _list(value: Any, name: str) -> list[dict[str, Any]]:
    found = [value] if isinstance(value, dict) else value
    if not isinstance(found, list) or not all(isinstance(one, dict) and one for one in found):
        raise VitinitError(f"sweep: {name} is a mapping of fields, or a list of these")
    return found


def _values(name: str, given: Any) -> list[Any]:
    if not isinstance(given, list) or not given:
        raise VitinitError(f"sweep: {name} needs a list of values")
    if len({json.dumps(value, sort_keys=True, default=str) for value in given}) < len(given):
        raise VitinitError(f"sweep: {name} has a value twice")
    return given


def _rule(rule: Mapping[str, Any], block: Block, file: GridFile, names: list[str]) -> dict[str, list[Any]]:
    found = {full(name, block, file): value if isinstance(value, list) else [value] for name, value in rule.items()}
    if missing := [name for name in found if name not in names]:
        raise VitinitError(f"sweep: without names {missing[0]}, which is not swept; swept: {', '.join(names)}")
    return found


def _with(block: Block, values: Values, told: tuple[str, ...]) -> Block:
    parts: dict[str, dict[str, Any]] = {part: {} for part in PARTS}
    for name, value in values.items():
        part, _, field = name.partition(".")
        parts[part][field] = value
    datasets = [{**dataset, **parts["dataset"]} for dataset in block.datasets]
    over = Parts(**{part: parts[part] for part in PARTS if part != "dataset"})
    content = {name: getattr(block, name) for name in Block.model_fields if name not in ("datasets", "sweep")}
    return SweptBlock.model_construct(**content, datasets=datasets, sweep={}, over=over, told=told)
