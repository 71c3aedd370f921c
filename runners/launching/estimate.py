"""Time estimates from measured runs of the same kind. Imports no torch."""

from __future__ import annotations

from collections import Counter, defaultdict
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


def estimate(cells: Iterable[Cell], roots: Iterable[Path], device: str, here: str = "") -> TimeEstimate:
    """Seconds of each run, from the records of the first folder that has any of its kind.

    Runs of one kind have the same model, dataset and recipe, but for the number of epochs and the seed; the time for an
    epoch is taken as the mean over their records on one kind of machine: this one, or the one that most kinds of these
    runs were recorded on.

    Args:
        cells: the runs.
        roots: results folders, in order of preference.
        device: `cpu` or `cuda`; records of the other say nothing.
        here: name of the processor or GPU that is preferred.
    """
    cells = list(cells)
    kinds = {_kind(cell.spec) for cell in cells}
    models = {model_of(cell.spec, device) for cell in cells}
    measured: dict[str, dict[str, list[float]]] = {}
    rates: dict[str, dict[str, list[float]]] = {}
    for root in roots:
        found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        timed: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        store = Store(root)
        for study in store.folders() if root.is_dir() else ():
            for record in store.read(study).done.values():
                if record.execution.get("device") != device:
                    continue
                kind, model, machine = _kind(record.spec), model_of(record.spec, device), _machine(record)
                if kind in kinds and kind not in measured:
                    found[kind][machine].append(record.seconds / record.spec.recipe.epochs)
                if model in models and model not in rates:
                    data = record.dataset
                    tested = data.val if record.spec.dataset.evaluate_on == "val" else data.test
                    seen = images_seen(record.spec, (data.train, tested or 0))
                    timed[model][machine].append(record.seconds / seen)
        measured |= found
        rates |= timed
    times = Counter(machine for known in (*measured.values(), *rates.values()) for machine in known)

    def mean(known: dict[str, list[float]]) -> float:
        machine = min(known, key=lambda name: (name != here, -times[name], name))
        used.add(machine)
        return sum(known[machine]) / len(known[machine])

    used: set[str] = set()
    seconds, scaled = {}, {}
    for cell in cells:
        counts = datasets.get(cell.spec.dataset.name).counts(cell.spec.dataset)
        if known := measured.get(_kind(cell.spec)):
            seconds[cell.run_id] = cell.spec.recipe.epochs * mean(known)
        elif counts and (known := rates.get(model_of(cell.spec, device))):
            scaled[cell.run_id] = mean(known) * images_seen(cell.spec, counts)
    return TimeEstimate(seconds, scaled, tuple(sorted(used)))


def images_seen(spec: RunSpec, counts: tuple[int, int]) -> float:
    """Training images that a run takes as long as, with so many training and held-out images.

    A step is three times a forward pass: the gradients of a matrix product are two products of its size.
    """
    return spec.recipe.epochs * counts[0] + len(spec.recipe.evaluated_epochs) * counts[1] / 3


def estimated_work(spec: RunSpec, images: int) -> float:
    """Return how long a run on so many images takes, in any unit: images seen times operations of one image."""
    return spec.recipe.epochs * images * spec.model.forward_operations(classes=10)  # a head is small


def model_of(spec: RunSpec, device: str) -> str:
    """Return what one image takes time by: the model, the precision and, on a GPU, the batch size."""
    batch = "" if device == "cpu" else f" {spec.recipe.batch_size}"
    return f"{spec.model.model_dump_json()}{spec.recipe.precision}{batch}"


def _kind(spec: RunSpec) -> str:
    recipe = spec.recipe.model_copy(update={"epochs": 1, "warmup_epochs": 0})
    return f"{spec.dataset.model_dump_json()}{spec.model.model_dump_json()}{recipe.model_dump_json()}"


def _machine(record: RunRecord) -> str:
    return str(record.environment.get("gpu") or record.environment.get("processor"))
