"""Time of runs, from records of runs like them. Imports no torch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from pathlib import Path
from statistics import mean

from vitinit.benchmark.grids.schema import Cell
from vitinit.benchmark.models.build import counts
from vitinit.benchmark.records.store import Store
from vitinit.benchmark.spec import RunSpec


def estimate(
    cells: Collection[Cell], folders: Iterable[Path], device: str, machine: str | None = None
) -> tuple[dict[str, float], str]:
    """Return the seconds of each run, by run_id, and the processor or GPU that they were measured on.

    Runs count as alike that have the same model, data set, batch size and precision; the time of an epoch is the mean
    over their records. All are of one machine: the one that is asked for, or the one with records of most kinds.

    Args:
        cells: the runs; those with no record like them are left out.
        folders: of studies; `estimate` reads every record in them.
        device: `cpu` or `cuda`; records of the other say nothing.
        machine: name of a processor or GPU; None: any.
    """
    kinds = {cell.run_id: _kind(cell.spec) for cell in cells}
    epochs: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for folder in folders:
        for record in Store(folder.parent).read(folder.name).done.values():
            name = str(record.environment.get("gpu") or record.environment.get("processor"))
            if record.execution.get("device") == device and machine in (None, name):
                epochs[name][_kind(record.spec)].append(record.seconds / record.spec.recipe.epochs)
    name = max(epochs, key=lambda name: len(epochs[name].keys() & set(kinds.values())), default="")
    times = epochs[name]
    known = {c.run_id: c.spec.recipe.epochs * mean(times[kinds[c.run_id]]) for c in cells if kinds[c.run_id] in times}
    return known, name if known else ""


def estimated_work(spec: RunSpec, images: int) -> float:
    """Return how long a run on so many images takes, in any unit: images seen times operations of one image."""
    return spec.recipe.epochs * images * counts(spec.model).operations


def _kind(spec: RunSpec) -> str:
    recipe = spec.recipe
    return f"{spec.dataset.model_dump_json()}{spec.model.model_dump_json()}{recipe.batch_size}{recipe.precision}"
