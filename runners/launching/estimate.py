"""Time estimates from measured runs of the same kind. Imports no torch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from vitinit.benchmark.datasets import registry as datasets
from vitinit.benchmark.grids.schema import Cell
from vitinit.benchmark.records.record import RunRecord
from vitinit.benchmark.records.store import Store
from vitinit.benchmark.spec import RunSpec


@dataclass(frozen=True)
class TimeEstimate:
    """Estimated time of runs, where runs of the same kind have been measured."""

    seconds: dict[str, float] = field(default_factory=dict)
    """By run_id."""
    in_proportion: dict[str, float] = field(default_factory=dict)
    """The same of runs of which only the model has been timed, with other data or another recipe: by images seen."""
    measured_on: tuple[str, ...] = ()
    """The processors or GPUs."""


def estimate(cells: Iterable[Cell], roots: Iterable[Path], device: str) -> TimeEstimate:
    """Seconds of each run, from the records of the first folder that has any of its kind.

    Runs of one kind have the same model, dataset and recipe, but for the number of epochs and the seed; the time for an
    epoch is taken as the mean over their records.

    Args:
        cells: the runs.
        roots: results folders, in order of preference.
        device: `cpu` or `cuda`; records of the other say nothing.
    """
    cells = list(cells)
    wanted = {_kind(cell.spec): cell.spec for cell in cells}
    models = {model_of(cell.spec) for cell in cells}
    rates: dict[str, list[tuple[float, str]]] = {}
    measured: dict[str, list[tuple[float, str]]] = {}
    for root in roots:
        found, timed = defaultdict(list), defaultdict(list)
        store = Store(root)
        for study in store.folders() if root.is_dir() else ():
            for record in store.read(study).done.values():
                if record.execution.get("device") != device:
                    continue
                kind, model = _kind(record.spec), model_of(record.spec)
                if kind in wanted and kind not in measured:
                    found[kind].append((record.seconds / record.spec.recipe.epochs, _machine(record)))
                if model in models and model not in rates:
                    data = record.dataset
                    tested = data.val if record.spec.dataset.evaluate_on == "val" else data.test
                    seen = images_seen(record.spec, (data.train, tested or 0))
                    timed[model].append((record.seconds / seen, _machine(record)))
        measured |= found
        rates |= timed
    seconds = {
        cell.run_id: cell.spec.recipe.epochs * sum(each for each, _ in known) / len(known)
        for cell in cells
        if (known := measured.get(_kind(cell.spec)))
    }
    scaled, used = {}, [known for kind, known in measured.items() if kind in wanted]
    for cell in cells:
        counts = datasets.get(cell.spec.dataset.name).counts(cell.spec.dataset)
        known = rates.get(model_of(cell.spec))
        if cell.run_id not in seconds and counts and known:
            rate = sum(each for each, _ in known) / len(known)
            scaled[cell.run_id] = rate * images_seen(cell.spec, counts)
            used.append(known)
    machines = {machine for known in used for _, machine in known}
    return TimeEstimate(seconds, scaled, tuple(sorted(machines)))


def images_seen(spec: RunSpec, counts: tuple[int, int]) -> float:
    """Training images that a run takes as long as, with so many training and held-out images.

    A step is three times a forward pass: the gradients of a matrix product are two products of its size.
    """
    return spec.recipe.epochs * counts[0] + len(spec.recipe.evaluated_epochs) * counts[1] / 3


def estimated_work(spec: RunSpec, images: int) -> float:
    """Return how long a run on so many images takes, in any unit: images seen times operations of one image."""
    return spec.recipe.epochs * images * spec.model.forward_operations(classes=10)  # a head is small


def model_of(spec: RunSpec) -> str:
    """Return what one image takes time by: the model and the precision."""
    return f"{spec.model.model_dump_json()}{spec.recipe.precision}"


def _kind(spec: RunSpec) -> str:
    recipe = spec.recipe.model_copy(update={"epochs": 1, "warmup_epochs": 0})
    return f"{spec.dataset.model_dump_json()}{spec.model.model_dump_json()}{recipe.model_dump_json()}"


def _machine(record: RunRecord) -> str:
    return str(record.environment.get("gpu") or record.environment.get("processor"))
