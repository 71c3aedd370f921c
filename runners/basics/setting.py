"""Execution settings of runs, and their events. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from vitinit.benchmark.records.record import EpochRow, FailureRecord, Probe, RunRecord
from vitinit.benchmark.spec import RunSpec
from vitinit.initializers.errors import VitinitError
from vitinit.runners.basics.machine import lacks_compiler


@dataclass(frozen=True)
class Execution:
    """Settings that change speed or place only: recorded, never part of a run's identity."""

    device: str
    threads: int
    executor: str
    deterministic: bool = False
    """Only operations that give the same bits every time; on a CPU they all do."""
    processes: int = 1
    """Number of processes of a run; `threads` are those of each."""
    nodes: int = 1
    """On so many machines."""
    micro_batch: int | None = None
    """At most this many images at once in a process, gradients adding up to those of the batch; None: all its share."""
    compiled: bool = False
    """Train through torch.compile."""
    loader: str = "auto"
    """Source of batches: see `loaders.open_data`. A record names the loader that `auto` became."""


@dataclass(frozen=True)
class Setting:
    """Execution settings of a study; picklable."""

    root: Path
    """The results folder."""
    study: str
    data_dir: Path
    execution: Execution
    code: dict[str, Any]
    """Return value of `environment.code()` in the process that launched the study."""
    checkpoint_minutes: float = 5.0
    """Minutes between two checkpoints of a run; 0 saves after every step."""
    keep_weights: bool = False
    """Keep the final weights as `<root>/<study>/weights/<run_id>.pt`, their average as `<run_id>.ema.pt`."""
    probes: bool = True
    """Measure attention at the beginning and after each epoch: see `benchmark.records.record.Probe`."""
    keep_maps: bool = False
    """Keep attention maps before and after training: see `benchmark.records.maps`."""
    grace_s: float = 10.0
    """Seconds that runs have to save and end when the launch is stopped."""
    retried: dict[str, str] = field(default_factory=dict)
    """Failures that are to be tried again: when they were recorded, by run_id. Any other one is left alone."""
    track: tuple[str, ...] = ()
    """Trackers that are told about every epoch: see `runners.tracking`."""
    sharing: int = 1
    """Number of runs that share the device, and its memory."""


@dataclass(frozen=True)
class Event:
    """Event of a run in progress: one of these fields, or two where one says so."""

    run_id: str
    epoch: EpochRow | None = None
    probe: Probe | None = None
    """Taken after this epoch, where `Setting.track` names who reads it."""
    resumed: str = ""
    """Step that it resumes from, and the changes since it was stopped."""
    trouble: str = ""
    """Problem that did not end the run."""
    tracker: str = ""
    """Tracker that has the problem, if one has: it is printed once."""


@dataclass(frozen=True)
class Unfinished:
    """A run that ended here without a record: stopped, or another launcher's."""

    run_id: str
    status: Literal["stopped", "elsewhere"]
    reason: str


End = RunRecord | FailureRecord | Unfinished


def check_execution(spec: RunSpec, execution: Execution) -> None:
    """Refuse what would change the numbers of a run: TF32 on a CPU, and parts of batches where a model has BatchNorm.

    Raises:
        VitinitError: the device does not have the precision, batches would be cut, or there is no compiler.
    """
    # a cluster's login node may have none
    if execution.compiled and execution.executor != "slurm" and (lacking := lacks_compiler(execution.device)):
        raise VitinitError(f"--compile: {lacking}")
    if spec.recipe.precision == "tf32" and execution.device != "cuda":
        raise VitinitError(f"recipe {spec.recipe.name!r}: precision tf32 is a CUDA GPU's; others have fp32")
    batch = spec.recipe.batch_size
    if spec.model.batch_norm and (execution.processes > 1 or (execution.micro_batch or batch) < batch):
        raise VitinitError(
            f"a {spec.model.arch} cannot be trained in parts of batches: its BatchNorm takes the statistics of the "
            f"whole batch of {batch}; train it in one process, without --micro-batch"
        )
