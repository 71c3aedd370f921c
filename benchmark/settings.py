"""Telling settings apart: which runs are repetitions of one another, and what the others differ in, in a few words."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from vitinit.benchmark.spec import RunSpec

TELLING = [f"model.{name}" for name in ("width", "heads", "kernel_size", "python", "timm")]
"""Fields that name a setting best, where several would do."""
Fields = dict[str, str]


def columns(runs: Mapping[str, tuple[str, RunSpec]], counted: Collection[str]) -> dict[str, str]:
    """Return a label for each run of its settings beside the row: runs of one row and label are repetitions.

    Where a row holds runs of several settings on one dataset (of two models, or the recipe was changed), the fields
    that tell them apart follow it: `cifar10 (arch timm)`.

    Args:
        runs: Row and spec, by run_id.
        counted: Those of which no two settings may share row and label.
    """
    settings: dict[str, dict[str, Fields]] = defaultdict(dict)
    groups: dict[str, dict[str, list[Fields]]] = defaultdict(lambda: defaultdict(list))
    for run_id, (row, spec) in runs.items():
        label, fields = spec.dataset.label, flat(spec.model_dump_json(exclude={"dataset", "seed"}))
        settings[label][run_id] = fields
        if run_id in counted and not any(fields is other for other in groups[label][row]):
            groups[label][row].append(fields)
    labels = {}
    for label, its in settings.items():
        chosen = _apart(list(groups[label].values()), {field for fields in its.values() for field in fields})
        for run_id, fields in its.items():
            suffix = ", ".join(f"{short(field)} {fields[field]}" for field in chosen if _applies(field, fields))
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
    """Return True if a setting has the field, with a value in it."""
    return setting.get(field, "null") != "null"


@lru_cache(maxsize=4096)  # thousands of runs have a few settings between them
def flat(setting: str) -> Fields:
    """Return each field of a JSON object as text, by its path as a grid has it: `recipe.optimizer.momentum`."""

    def flatten(prefix: str, value: Any) -> Iterator[tuple[str, str]]:
        if isinstance(value, dict) and value:
            for key, inner in value.items():
                path = "" if key == "params" or (key == "name" and prefix.startswith("recipe.")) else f".{key}"
                yield from flatten(f"{prefix}{path}".removeprefix("."), inner)
        elif prefix == "recipe.augment" and value:
            words = [[one["name"], *(f"{key} {each}" for key, each in one["params"].items())] for one in value]
            yield prefix, ", ".join(map(" ".join, words))
        elif value != {}:
            yield prefix, value if isinstance(value, str) else json.dumps(value)

    return dict(flatten("", json.loads(setting)))


def named_fields(spec: RunSpec) -> Fields:
    """Every field of a run as text, by its path and by the end of it that no second field has: `recipe.lr` and `lr`."""
    fields = flat(spec.model_dump_json(exclude={"seed"}))
    ends = Counter(field.partition(".")[2] for field in fields)
    alone = {end: value for field, value in fields.items() if ends[end := field.partition(".")[2]] == 1 and end}
    return alone | {short(field): value for field, value in fields.items()} | fields


def short(field: str) -> str:
    """Return the name that tables have for a field, from its path."""
    if field.startswith(("model.", "recipe.")) and field != "recipe.name":
        return field.removeprefix("model.args.").removeprefix("model.").removeprefix("recipe.")
    return field
