"""Telling settings apart: which runs are repetitions of one another, and what the others differ in, in a few words."""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeVar

from vitinit.benchmark.spec import DatasetSpec, RunSpec

TELLING = [f"model.{name}" for name in ("width", "heads", "kernel_size", "python", "timm")]
"""Fields that name a setting best, where several would do."""
PAPERS = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "svhn": "SVHN", "imagenet": "ImageNet"}
"""Names that papers have for datasets."""
Fields = dict[str, str]
Key = TypeVar("Key")


def columns(runs: Mapping[Key, tuple[str, RunSpec]], counted: Collection[Key]) -> dict[Key, str]:
    """Return a label for each run of its settings beside the row: runs of one row and label are repetitions.

    Where a row holds runs of several settings on one dataset (of two models, or the recipe was changed), the fields
    that tell them apart follow it: `cifar10 (arch timm)`.

    Args:
        runs: Row and spec, by run_id or another key.
        counted: Those of which no two settings may share row and label.
    """
    settings: dict[str, dict[Key, tuple[str, Fields]]] = defaultdict(dict)
    for run_id, (row, spec) in runs.items():
        fields = flat(spec.model_dump_json(exclude={"dataset", "seed"}))
        settings[spec.dataset.label][run_id] = row, {name: value for name, value in fields.items() if value != "null"}
    labels = {}
    for label, by_run in settings.items():
        fields_of_all = {field for _, fields in by_run.values() for field in fields}
        chosen = _apart([setting for run_id, setting in by_run.items() if run_id in counted], fields_of_all)
        for run_id, (_, fields) in by_run.items():
            suffix = ", ".join(f"{short(field)} {fields[field]}" for field in chosen if field in fields)
            labels[run_id] = f"{label} ({suffix})" if suffix else label
    return labels


def column_parts(datasets: Mapping[str, DatasetSpec]) -> dict[str, list[str]]:
    """Return the dataset of each column, and on it what its label says: `CIFAR-10`, `5,000 images`, `redrawn`.

    A dataset of a folder has the folder's name, with as much of its path as tells it from others; one of a file has no
    hash of that.

    Args:
        datasets: By the labels that `columns` gives.
    """
    paths = {f"/{dataset.path.rstrip('/')}" for dataset in datasets.values() if dataset.path}
    result = {}
    for column, dataset in datasets.items():
        name = PAPERS.get(dataset.name, dataset.name.partition("@")[0])
        steps = (dataset.path or "").rstrip("/").split("/")
        for depth in range(len(steps), 0, -1) if dataset.path else ():
            end = "/".join(steps[-depth:])
            if sum(path.endswith(f"/{end}") for path in paths) == 1:
                name = end
        details = [
            f"{dataset.train_size:,} images" if dataset.train_size else "",
            f"{dataset.val_size:,} held out" if dataset.val_size else "",
            "redrawn" if dataset.train_draw == "seed" else "",
            "validation" if dataset.evaluate_on == "val" else "",
            *column.removeprefix(dataset.label).strip(" ()").replace("_", " ").split(", "),
        ]
        result[column] = [name, *filter(None, details)]
    names = [*result.values()]
    return {column: parts if names.count(parts) == 1 else [column] for column, parts in result.items()}


def column_names(datasets: Mapping[str, DatasetSpec]) -> dict[str, str]:
    """Return the name of each column for people: `CIFAR-10 (5,000 images, redrawn)` for `cifar10[5000, redrawn]`."""
    return {column: joined(parts) for column, parts in column_parts(datasets).items()}


def joined(parts: Sequence[str]) -> str:
    """Return a name from its parts: `CIFAR-10 (5,000 images, redrawn)`."""
    return f"{parts[0]} ({', '.join(parts[1:])})".removesuffix(" ()")


def _apart(settings: list[tuple[str, Fields]], fields: set[str]) -> list[str]:
    """Return the few fields that separate the settings of each row."""
    distinct = {(row, *sorted(values.items())): (row, values) for row, values in settings}.values()

    def separated(chosen: Iterable[str]) -> int:
        return len({(row, *map(values.get, chosen)) for row, values in distinct})

    families_alone = separated(["model.arch"]) == separated(fields)
    chosen: list[str] = []
    for field in [*(["model.arch"] if families_alone else []), *TELLING, *sorted(fields - {*TELLING})]:
        if separated([*chosen, field]) > separated(chosen):
            chosen.append(field)
    return chosen


@lru_cache(maxsize=4096)  # thousands of runs have a few settings between them
def flat(setting: str) -> Fields:
    """Return each field of a JSON object as text, by its path as a grid has it: `recipe.optimizer.momentum`."""
    run = json.loads(setting)
    steps = [[step["name"], *(f"{key} {value}" for key, value in step["params"].items())]
             for step in run["recipe"]["augment"]]  # fmt: skip
    run["recipe"]["augment"] = ", ".join(map(" ".join, steps)) or []
    fields = {}
    for path, value in flatten(run).items():
        name = re.sub(r"^(recipe\..+)\.name$", r"\1", path.replace(".params.", "."))
        fields[name] = value if isinstance(value, str) else json.dumps(value)
    return fields


def flatten(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested fields as `outer.inner`; lists as JSON text."""
    row: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, dict):
            row |= flatten(value, f"{prefix}{key}.")
        else:
            row[f"{prefix}{key}"] = json.dumps(value, ensure_ascii=False) if isinstance(value, list) else value
    return row


def named_fields(spec: RunSpec) -> Fields:
    """Every field of a run as text, by its path and by the end of it that no second field has: `recipe.lr` and `lr`."""
    fields = flat(spec.model_dump_json(exclude={"seed"}))
    ends = Counter(field.partition(".")[2] for field in fields)
    alone = {end: value for field, value in fields.items() if ends[end := field.partition(".")[2]] == 1 and end}
    return alone | {short(field): value for field, value in fields.items()} | fields


def short(field: str) -> str:
    """Return the name that tables have for a field, from its path."""
    return re.sub(r"^(model\.(args\.)?|recipe\.(?!name$))", "", field)
