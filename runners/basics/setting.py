"""Execution settings of runs, their ends, and requests to stop. Imports no torch.

Stopping is normal: a run that is asked to stop saves where it is and ends within seconds.
"""

import platform
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, PositiveInt

from vitinit.benchmark.grids.schema import Cell
from vitinit.benchmark.records.record import FailureRecord, RunRecord, SkipRecord
from vitinit.benchmark.records.store import Store
from vitinit.benchmark.spec import RunSpec
from vitinit.initializers.errors import VitinitError
from vitinit.runners.basics.environment import environment, lacks_compiler, shareable
from vitinit.slurm.jobs import current


@dataclass(frozen=True)
class Execution:
    """Settings that change speed or place only: recorded, never part of a run's identity."""

    device: str
    threads: Annotated[int, Field(ge=1, le=1024)]
    executor: str
    deterministic: bool = False
    """Only operations that give the same bits every time; on a CPU they all do."""
    processes: int = 1
    """Number of processes of a run; `threads` are those of each."""
    nodes: int = 1
    """On so many machines."""
    micro_batch: PositiveInt | None = None
    """At most this many images at once in a process, gradients adding up to those of the batch; None: all its share."""
    compiled: bool = False
    """Train through torch.compile."""
    loader: str = "auto"
    """Source of batches: see `loaders.base.open_data`. A record names the loader that `auto` became."""


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
    """Keep attention maps before and after training: see `benchmark.records.store`."""
    grace_s: float = 10.0
    """Seconds that runs have to save and end when the launch is stopped."""
    retried: dict[str, str] = field(default_factory=dict)
    """Failures that are to be tried again: when they were recorded, by run_id. Any other one is left alone."""
    track: tuple[str, ...] = ()
    """Trackers that are told about every epoch: see `runners.tracking`."""
    measures: tuple[str, ...] = ()
    """Probes and metrics of files of one's own."""
    sharing: int = 1
    """Number of runs that share the device, and its memory."""

    @property
    def store(self) -> Store:
        """The results folder, as a store of records."""
        return Store(self.root)

    @property
    def study_folder(self) -> Path:
        """Folder of the study's records."""
        return self.root / self.study

    def folder(self, run_id: str) -> Path:
        """Return where an unfinished run keeps its claims and checkpoints."""
        return self.study_folder / "unfinished" / run_id


@dataclass(frozen=True)
class Unfinished:
    """A run that ended here without a record: stopped, without data that can be read, or another launcher's."""

    run_id: str
    status: Literal["stopped", "refused", "elsewhere"]
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


SIGNALS = signal.SIGTERM, signal.SIGINT, signal.SIGUSR2, signal.SIGHUP
"""Signals that request a stop: Ctrl-C, `kill`, a closed terminal, and a cluster before a limit or preemption."""


class Stopped(Exception):
    """A run ended before its last epoch because it was asked to; the same command goes on with it."""


class Refused(VitinitError):
    """Data that cannot be read here. No run is to blame, so none is recorded as failed."""


class BrokenDevice(VitinitError):
    """A GPU that cannot compute. No run is to blame, so none is recorded as failed."""


class Stop:
    """A request to stop. Signals and the heartbeat make it; a run looks at it between steps.

    Args:
        parent: a request that counts for this one too.
    """

    def __init__(self, parent: "Stop | None" = None) -> None:
        self._reason, self._parent = "", parent

    @property
    def reason(self) -> str:
        """Reason for the stop; empty when none was requested."""
        return self._reason or (self._parent.reason if self._parent else "")

    def request(self, reason: str) -> None:
        """Ask for a stop; the first reason stays."""
        self._reason = self._reason or reason

    def check(self) -> None:
        """Raise Stopped when a stop was asked for."""
        if self.reason:
            raise Stopped(self.reason)


@contextmanager
def on_signals(stop: Stop) -> Iterator[None]:
    """Turn signals into a request to stop; those that this process was started to ignore (nohup) stay ignored.

    Another thread than the main one gets no signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(number: int, frame: object) -> None:
        stop.request(signal.Signals(number).name)

    before = {number: signal.signal(number, handle) for number in SIGNALS if signal.getsignal(number) != signal.SIG_IGN}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def final_outcome(cell: Cell, setting: Setting) -> RunRecord | FailureRecord | None:
    """Return the record of a run that has ended; None where it has failed and is to be tried again."""
    outcome = setting.store.outcome(setting.study, cell.run_id)
    again = isinstance(outcome, FailureRecord) and outcome.written == setting.retried.get(outcome.run_id)
    return None if again or isinstance(outcome, SkipRecord) else outcome


def failure(
    cell: Cell, setting: Setting, error: str, message: str, trace: str = "", notes: list[str] | None = None
) -> FailureRecord:
    """The record of a run that did not finish."""
    return FailureRecord(
        run_id=cell.spec.run_id,
        study=setting.study,
        row=cell.row,
        spec=cell.spec,
        written=now(),
        error=error,
        message=shareable(message),
        traceback=shareable(trace),
        execution=asdict(setting.execution),
        environment={**environment(setting.execution.device, setting.code), "host": platform.node(), "job": current()},
        notes=notes or None,
    )


def now() -> str:
    """UTC, ISO 8601, to the second."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
