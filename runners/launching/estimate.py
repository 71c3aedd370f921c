"""Time of runs, from records of runs like them on this machine. Imports no torch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from pathlib import Path
from statistics import mean

from vitinit.benchmark.grids.schema import Cell
from vitinit.benchmark.records.store import Store
from vitinit.benchmark.spec import RunSpec
from vitinit.runners.basics.environment import device_name


def estimate(cells: Collection[Cell], folders: Iterable[Path], device: str) -> dict[str, float]:
    """Return the seconds of each run by run_id; runs with no record like them are left out.

    Runs are alike that have the same model, data set, batch size and precision; the time of an epoch is the mean over
    their records on this processor, or this GPU.

    Args:
        cells: the runs.
        folders: of studies; every record in them is read.
        device: `cpu` or `cuda`; records of the other say nothing.
    """
    machine, epochs = device_name(device), defaultdict[str, list[float]](list)
    for folder in folders:
        for record in Store(folder.parent).read(folder.name).done.values():
            name = record.environment.get("gpu") or record.environment.get("processor")
            if (record.execution.get("device"), name) == (device, machine):
                epochs[_kind(record.spec)].append(record.seconds / record.spec.recipe.epochs)
    times = {cell.run_id: (cell.spec.recipe.epochs, epochs.get(_kind(cell.spec))) for cell in cells}
    return {run_id: number * mean(some) for run_id, (number, some) in times.items() if some}


def _kind(spec: RunSpec) -> str:
    return repr((spec.dataset, spec.model, spec.recipe.batch_size, spec.recipe.precision))
