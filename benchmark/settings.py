"""Telling settings apart: which runs are repetitions of one another, and what the others differ in, in a few words."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from typing import Any

from vitinit.benchmark.models.registry import families
from vitinit.benchmark.spec import RunSpec

Setting = tuple[str, str]
"""A row label, and the JSON of all that repetitions must agree on."""


def columns(runs: Mapping[str, tuple[str, RunSpec]], counted: Collection[str] | None = None) -> dict[str, str]:
    """Return a label for each run of its settings beside the row: runs of one row and label are repetitions.

    Where a row holds runs of several settings on one dataset (of two models, or the recipe was changed), the fields
    that tell them apart follow it: `cifar10 (arch swin)`.

    Args:
        runs: Row and spec, by run_id.
        counted: Those of which no two settings may share row and label; None for all.
    """
    by_label: dict[str, dict[str, Setting]] = defaultdict(dict)
    for run_id, (row, spec) in runs.items():
        by_label[spec.dataset.label][run_id] = row, spec.model_dump_json(exclude={"dataset", "seed"})
    labels = {}
    for label, setting in by_label.items():
        # Thousands of runs have a few settings between them: each is looked at once.
        apart = {setting[run_id] for run_id in setting if counted is None or run_id in counted}
        suffix = _distinguish({s: {"row": s[0], **flat(s[1])} for s in set(setting.values())}, apart)
        for run_id, its in setting.items():
            labels[run_id] = f"{label} ({suffix[its]})" if suffix[its] else label
    return labels


def flat(setting: str) -> dict[str, str]:
    """Every field of a JSON object as text, by its path: `model.width`."""

    def flatten(prefix: str, value: Any) -> Iterable[tuple[str, str]]:
        if isinstance(value, dict) and value:
            for key, inner in value.items():
                yield from flatten(f"{prefix}.{key}" if prefix else key, inner)
        elif isinstance(value, list) and value and all(isinstance(each, dict) and "name" in each for each in value):
            yield prefix, ", ".join(map(_in_words, value))
        else:
            yield prefix, value if isinstance(value, str) else json.dumps(value)

    return dict(flatten("", json.loads(setting)))


def _in_words(named: dict[str, Any]) -> str:
    """Return an augmentation as text: `color_jitter brightness 0.3`."""
    return " ".join([named["name"], *(f"{key} {value}" for key, value in named.get("params", {}).items())])


@lru_cache(maxsize=4096)
def _named_fields(setting: str) -> dict[str, str]:
    fields = flat(setting)
    by_name: dict[str, set[str]] = defaultdict(set)
    for field in fields:
        for name in names(field):
            by_name[name].add(field)
    unique = {name: fields[min(its)] for name, its in by_name.items() if len(its) == 1}
    return {**unique, **fields, **{short(field): value for field, value in fields.items()}}


def named_fields(spec: RunSpec) -> dict[str, str]:
    """Every field of a run as text, by its path and all other names that no second field has: `recipe.lr` and `lr`."""
    return _named_fields(spec.model_dump_json(exclude={"seed"}))


def names(field: str) -> set[str]:
    """Return the names of a field beside its path: that of tables, and those of `sweep:` in a grid.

    So `recipe.optimizer.params.momentum` is `recipe.optimizer.momentum` and `optimizer.momentum`, too.
    """
    bare = field.replace(".params.", ".")
    if field.startswith("recipe."):
        bare = bare.removesuffix(".name")
    return {short(field), bare, bare.partition(".")[2]} - {""}


def short(field: str) -> str:
    """Return the name that tables have for a field, from its path."""
    if field in ("recipe.optimizer.name", "recipe.schedule.name"):
        return field.split(".")[1]
    if field.startswith("model.args."):
        return field.removeprefix("model.args.")
    if field.startswith(("model.", "recipe.")) and field != "recipe.name":
        return field.partition(".")[2]
    return ".".join(field.split(".")[-2:])


def _distinguish(settings: dict[Setting, dict[str, str]], apart: Iterable[Setting]) -> dict[Setting, str]:
    """For each setting, the few fields that separate those of one row that must be; an empty text where none do."""
    by_row = defaultdict(list)
    for setting in apart:
        by_row[settings[setting]["row"]].append(settings[setting])

    def kinds(fields: Iterable[str]) -> int:
        return sum(
            len({tuple(s[f] if _applies(f, s) else None for f in fields) for s in group}) for group in by_row.values()
        )

    fields = {field for setting in settings.values() for field in setting}
    families_alone = kinds(["model.arch"]) == kinds(fields)
    chosen = ["model.arch"] if families_alone and kinds(fields) > kinds([]) else []
    telling = [f"model.{name}" for family in families().values() for name in family.telling]
    for field in sorted(fields, key=lambda field: (telling.index(field) if field in telling else len(telling), field)):
        if kinds([*chosen, field]) > kinds(chosen):
            chosen.append(field)
    names = {field: short(field) for field in chosen}
    return {key: ", ".join(f"{names[f]} {s[f]}" for f in chosen if _applies(f, s)) for key, s in settings.items()}


def _applies(field: str, setting: dict[str, str]) -> bool:
    """Return True if a model of this family has the field, with more than one possible value."""
    always = families()[setting["model.arch"]].also_recorded
    return field.removeprefix("model.") not in always and setting.get(field, "null") != "null"
