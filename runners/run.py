"""One RunSpec -> one record."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path

import torch

from benchmark import datasets
from benchmark.grid import Cell
from benchmark.models import build_model, parameter_count
from benchmark.record import DatasetInfo, EpochRow, FailureRecord, RunRecord, SkipRecord
from initializers import registry
from initializers.initialize import initialize
from runners.environment import environment
from runners.loaders.resident import ResidentLoader
from runners.streams import stream
from runners.train import train

PROBE_IMAGES = 64
"""How many training images attention at initialisation is measured on."""


@dataclass(frozen=True)
class Execution:
    """What changes speed or place only: recorded, never part of a run's identity."""

    device: str
    threads: int
    executor: str


@dataclass(frozen=True)
class Event:
    """What a run in progress has to say: steps of a slow initialisation, or a finished epoch."""

    run_id: str
    init_done: int = 0
    init_total: int = 0
    epoch: EpochRow | None = None


def run(
    cell: Cell, study: str, data_dir: Path, execution: Execution, on_event: Callable[[Event], None] = lambda event: None
) -> RunRecord | FailureRecord:
    """Carry out one run; whatever goes wrong in it ends in a FailureRecord.

    The random streams of a run are functions of its seed alone, so base weights, data order and augmentation are the
    same for every method at one seed.
    """
    try:
        return _run(cell, study, data_dir, execution, on_event)
    except Exception as error:
        return failure(cell, study, execution, type(error).__name__, str(error), traceback.format_exc())


def _run(cell: Cell, study: str, data_dir: Path, execution: Execution, on_event: Callable[[Event], None]) -> RunRecord:
    start = time.perf_counter()
    spec, device = cell.spec, torch.device(execution.device)
    provenance = environment(device)
    torch.set_num_threads(execution.threads)
    data = datasets.load(spec.dataset, spec.model.image_size, data_dir)
    loader = ResidentLoader(data, spec.recipe, spec.seed, device)
    model = build_model(spec.model, len(data.classes)).to(device)
    # the same images at every seed, from all over a split that may be sorted by class
    probe = torch.randperm(len(data.train.labels), generator=stream(0, "probe"))[:PROBE_IMAGES]
    report = initialize(
        model,
        registry.build(spec.base.name, spec.base.params, "base"),
        registry.build(spec.method.name, spec.method.params, "method") if spec.method else None,
        lambda name: stream(spec.seed, name),
        loader.normalise(data.train.images[probe]),
        lambda done, total: on_event(Event(spec.run_id, init_done=done, init_total=total)),
    )
    history = train(model, loader, spec.recipe, spec.seed, lambda row: on_event(Event(spec.run_id, epoch=row)))
    return RunRecord(
        run_id=spec.run_id,
        study=study,
        row=cell.row,
        spec=spec,
        written=now(),
        seconds=time.perf_counter() - start,
        parameters=parameter_count(model),
        dataset=DatasetInfo(
            train=len(data.train.labels),
            test=len(data.test.labels),
            classes=len(data.classes),
            checksum=data.checksum,
        ),
        init=report,
        history=history,
        execution=asdict(execution),
        environment=provenance,
    )


def failure(cell: Cell, study: str, execution: Execution, error: str, message: str, trace: str = "") -> FailureRecord:
    """The record of a run that did not finish."""
    return FailureRecord(
        run_id=cell.spec.run_id,
        study=study,
        row=cell.row,
        spec=cell.spec,
        written=now(),
        error=error,
        message=message,
        traceback=trace,
        execution=asdict(execution),
        environment=environment(torch.device(execution.device)),
    )


def skip(cell: Cell, study: str, reason: str) -> SkipRecord:
    """The record of a run that cannot start here."""
    return SkipRecord(run_id=cell.spec.run_id, study=study, row=cell.row, spec=cell.spec, written=now(), reason=reason)


def now() -> str:
    """UTC, ISO 8601, to the second."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
