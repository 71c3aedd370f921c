"""Time of runs, from records of runs like them. Imports torch only where a GPU computes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from statistics import mean
from typing import Any

from vitinit.benchmark.grids.schema import Cell
from vitinit.benchmark.records.record import RunRecord
from vitinit.benchmark.spec import RunSpec
from vitinit.benchmark.terminal import duration
from vitinit.runners.basics.environment import cpu_model, device_name
from vitinit.runners.basics.machine import cores, default_device, gpu_slots

RATES = "name epochs lr min_lr warmup_epochs warmup_lr weight_decay betas eps label_smoothing"
"""Fields of a recipe that do not change the time of an epoch."""


def run_seconds(cells: Collection[Cell], records: Iterable[RunRecord]) -> dict[str, float]:
    """Return the time of runs by run_id, where one of the records is of the same work: see `estimate`."""
    epoch_seconds = defaultdict[str, list[float]](list)
    for record in records:
        epoch_seconds[_workload(record.spec)].append(record.seconds / record.spec.recipe.epochs)
    measured = [cell for cell in cells if _workload(cell.spec) in epoch_seconds]
    return {cell.run_id: cell.spec.recipe.epochs * mean(epoch_seconds[_workload(cell.spec)]) for cell in measured}


def estimate(cells: Collection[Cell], records: Iterable[RunRecord]) -> str:
    """Return in words how long runs take here, or an empty string where records do not tell that of each.

    A record counts where model, dataset and recipe are the same but for `RATES`, and the processor or GPU is the same.
    The run must have had as many threads as `vitinit run` gives it by default.

    Args:
        cells: the runs.
        records: of this study and of others.
    """
    device, model = default_device(), cpu_model()
    threads = 1 if device == "cpu" else max(1, cores() // len(gpu_slots()))
    here = device, threads, device_name(device), model
    measured = run_seconds(cells, (record for record in records if _machine(record) == here))
    if not model or len(measured) < len(cells):
        return ""
    return f"about {duration(sum(measured.values()))}, one run at a time, by records of the same hardware"


def _workload(spec: RunSpec) -> str:
    return repr((spec.dataset, spec.model, spec.recipe.model_dump(exclude=set(RATES.split()))))


def _machine(record: RunRecord) -> tuple[Any, ...]:
    how, where = record.execution, record.environment
    name, model = where.get("gpu") or where.get("processor"), (where.get("cpu") or {}).get("model")
    return how.get("device"), how.get("threads", 0) * how.get("processes", 1), name, model
