"""Time of runs, from records of runs like them. Imports no torch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from statistics import mean

from vitinit.benchmark.grids.schema import Cell
from vitinit.benchmark.models.build import counts
from vitinit.benchmark.records.store import Store
from vitinit.benchmark.spec import RunSpec


def estimate(
    cells: Iterable[Cell], folders: Iterable[Path], device: str, machine: str | None = None
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
    cells = list(cells)
    kinds = {_kind(cell.spec) for cell in cells}
    epochs: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for folder in folders:
        for record in Store(folder.parent).read(folder.name).done.values():
            name = str(record.environment.get("gpu") or record.environment.get("processor"))
            kind = _kind(record.spec)
            if kind in kinds and record.execution.get("device") == device and machine in (None, name):
                epochs[name][kind].append(record.seconds / record.spec.recipe.epochs)
    if not epochs:
        return {}, ""
    name, times = max(epochs.items(), key=lambda item: len(item[1]))
    known = {cell.run_id: (_kind(cell.spec), cell.spec.recipe.epochs) for cell in cells}
    return {run_id: count * mean(times[kind]) for run_id, (kind, count) in known.items() if kind in times}, name


def estimated_work(spec: RunSpec, images: int) -> float:
    """Return how long a run on so many images takes, in any unit: images seen times operations of one image."""
    return spec.recipe.epochs * images * counts(spec.model).operations


def _kind(spec: RunSpec) -> str:
    recipe = spec.recipe
    return f"{spec.dataset.model_dump_json()}{spec.model.model_dump_json()}{recipe.batch_size}{recipe.precision}"
