"""Telling settings apart: which runs are repetitions of one another, and what the others differ in, in a few words."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from vitinit.benchmark.models.registry import families
from vitinit.benchmark.spec import RunSpec

TELLING = [f"model.{name}" for name in ("width", "heads", "kernel_size", "python", "timm")]
"""Fields that name a setting best, where several would do."""
Fields = dict[str, str]


def columns(runs: Mapping[str, tuple[str, RunSpec]], counted: Collection[str] | None = None) -> dict[str, str]:
    """Return a label for each run of its settings beside the row: runs of one row and label are repetitions.

    Where a row holds runs of several settings on one dataset (of two models, or the recipe was changed), the fields
    that tell them apart follow it: `cifar10 (arch timm)`.

    Args:
        runs: Row and spec, by run_id.
        counted: Those of which no two settings may share row and label; None for all.
    """
    by_label: dict[str, dict[str, tuple[str, str]]] = defaultdict(dict)
    for run_id, (row, spec) in runs.items():
        by_label[spec.dataset.label][run_id] = row, spec.model_dump_json(exclude={"dataset", "seed"})
    labels = {}
    for label, settings in by_label.items():
        # Thousands of runs have a few settings between them: each is looked at once.
        fields = {setting: flat(setting[1]) for setting in set(settings.values())}
        by_row: dict[str, list[Fields]] = defaultdict(list)
        for row, setting in {settings[run_id] for run_id in settings if counted is None or run_id in counted}:
            by_row[row].append(fields[row, setting])
        chosen = _apart(list(by_row.values()), {field for each in fields.values() for field in each})
        for run_id, its in ((run_id, fields[each]) for run_id, each in settings.items()):
            suffix = ", ".join(f"{short(field)} {its[field]}" for field in chosen if _applies(field, its))
            labels[run_id] = f"{label} ({suffix})" if suffix else label
    return labels


def _apart(groups: list[list[Fields]], fields: set[str]) -> list[str]:
    """Return the few fields that separate the settings of each group."""

    def kinds(chosen: Iterable[str]) -> int:
        return sum(len({tuple(each[f] if _applies(f, each) else None for f in chosen) for each in group})
                   for group in groups)  # fmt: skip

    families_alone = kinds(["model.arch"]) == kinds(fields)
    chosen = ["model.arch"] if families_alone and kinds(fields) > kinds([]) else []
    for field in [*TELLING, *sorted(fields - {*TELLING})]:
        if kinds([*chosen, field]) > kinds(chosen):
            chosen.append(field)
    return chosen


def _applies(field: str, setting: Fields) -> bool:
    """Return True if a model of this family has the field, with more than one possible value."""
    always = families()[setting["model.arch"]].also_recorded
    return field.removeprefix("model.") not in always and setting.get(field, "null") != "null"


def flat(setting: str) -> Fields:
    """Every field of a JSON object as text, by its path: `model.width`."""

    def flatten(prefix: str, value: Any) -> Iterator[tuple[str, str]]:
        if isinstance(value, dict) and value:
            for key, inner in value.items():
                yield from flatten(f"{prefix}.{key}" if prefix else key, inner)
        elif prefix == "recipe.augment" and value:
            yield prefix, ", ".join(map(_in_words, value))
        else:
            yield prefix, value if isinstance(value, str) else json.dumps(value)

    return dict(flatten("", json.loads(setting)))


def _in_words(named: dict[str, Any]) -> str:
    """Return an augmentation as text: `color_jitter brightness 0.3`."""
    return " ".join([named["name"], *(f"{key} {value}" for key, value in named["params"].items())])


def named_fields(spec: RunSpec) -> Fields:
    """Every field of a run as text, by its path and all other names that no second field has: `recipe.lr` and `lr`."""
    return _named_fields(spec.model_dump_json(exclude={"seed"}))


@lru_cache(maxsize=4096)
def _named_fields(setting: str) -> Fields:
    fields, by_name = flat(setting), defaultdict[str, list[str]](list)
    for field, value in fields.items():
        bare = field.replace(".params.", ".")
        bare = bare.removesuffix(".name") if field.startswith("recipe.") else bare
        for name in {short(field), bare, bare.partition(".")[2]} - {""}:
            by_name[name].append(value)
    unique = {name: values[0] for name, values in by_name.items() if len(values) == 1}
    return {**unique, **fields, **{short(field): value for field, value in fields.items()}}


def short(field: str) -> str:
    """Return the name that tables have for a field, from its path."""
    if field in ("recipe.optimizer.name", "recipe.schedule.name"):
        return field.split(".")[1]
    if field.startswith("model.args."):
        return field.removeprefix("model.args.")
    if field.startswith(("model.", "recipe.")) and field != "recipe.name":
        return field.partition(".")[2]
    return ".".join(field.split(".")[-2:])
