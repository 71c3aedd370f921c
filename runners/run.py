"""One RunSpec -> one record."""

from __future__ import annotations

import io
import os
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Literal

import torch

from benchmark import datasets
from benchmark.atomic import write_atomically
from benchmark.grid import Cell
from benchmark.models import build_model, parameter_count
from benchmark.record import DatasetInfo, EpochRow, FailureRecord, RunRecord, Session, SkipRecord
from benchmark.store import Store
from initializers import registry
from initializers.errors import VitinitError, plain
from initializers.initialize import initialize
from initializers.report import InitReport
from runners import claims
from runners.checkpoint import Checkpoints, Interval
from runners.environment import differences, encodable, environment
from runners.loaders import make_loader
from runners.stop import Stop, Stopped
from runners.streams import stream
from runners.train import Diverged, Training, fingerprint, train

PROBE_IMAGES = 64
"""How many training images attention at initialisation is measured on."""


@dataclass(frozen=True)
class Execution:
    """What changes speed or place only: recorded, never part of a run's identity."""

    device: str
    threads: int
    executor: str
    deterministic: bool = False
    """Only operations that give the same bits every time; on a CPU they all do."""


@dataclass(frozen=True)
class Setting:
    """Where and how the runs of a study are carried out; picklable."""

    root: Path
    """The results folder."""
    study: str
    data_dir: Path
    execution: Execution
    code: dict[str, Any]
    """What `environment.code()` said in the process that launched the study."""
    checkpoint: Interval = field(default_factory=Interval)
    keep_weights: bool = False
    """Keep the final weights as `<root>/<study>/weights/<run_id>.pt`."""
    retried: dict[str, str] = field(default_factory=dict)
    """Failures that are to be tried again: when they were recorded, by run_id. Any other one is left alone."""


@dataclass(frozen=True)
class Event:
    """What a run in progress has to say: one of these fields."""

    run_id: str
    init_done: int = 0
    init_total: int = 0
    epoch: EpochRow | None = None
    resumed: str = ""
    """Where it goes on, and what has changed since it was stopped."""
    trouble: str = ""
    """What went wrong without ending the run."""


@dataclass(frozen=True)
class Ended:
    """A run that ended here without a record: stopped, or another launcher's."""

    run_id: str
    status: Literal["stopped", "elsewhere"]
    reason: str


def carry_out(
    cell: Cell, setting: Setting, stop: Stop, on_event: Callable[[Event], None] = lambda event: None
) -> RunRecord | FailureRecord:
    """Claim a run, carry it out from its newest checkpoint on, and record it.

    Whatever goes wrong in the run itself ends in a failure record. Its checkpoints stay for the next attempt, unless it
    diverged: it would do so again.

    Raises:
        Taken: another process is carrying it out, or has done so since this study was launched.
        Stopped: it was asked to stop; it has saved where it was.
        VitinitError: the results folder cannot be written.
    """
    store, run_id = Store(setting.root), cell.spec.run_id
    with claims.held(claims.folder(setting.root, setting.study, run_id), stop) as claim:
        recorded = store.outcome(setting.study, run_id)
        if isinstance(recorded, RunRecord):
            claim.finish()
            raise claims.Taken("another launcher has recorded it")
        if isinstance(recorded, FailureRecord) and recorded.written != setting.retried.get(run_id):
            raise claims.Taken("another launcher has tried it, and it failed")

        def tell(event: Event) -> None:
            if event.epoch:
                claim.update(event.epoch.epoch, cell.spec.recipe.epochs, event.epoch.test_top1)
            on_event(event)

        checkpoints = Checkpoints(
            claim.path.parent, setting.checkpoint, lambda text: on_event(Event(run_id, trouble=text))
        )
        outcome: RunRecord | FailureRecord
        try:
            outcome = _run(cell, setting, checkpoints, stop, tell)
        except Stopped:
            raise
        except Exception as error:
            outcome = failure(cell, setting, type(error).__name__, str(error), traceback.format_exc())
            if isinstance(error, Diverged):
                checkpoints.remove()
        if claim.lost():
            raise Stopped("another process has taken the run over")
        _record(outcome, store, checkpoints)
        if outcome.status == "done":
            claim.finish()
    return outcome


def _run(
    cell: Cell, setting: Setting, checkpoints: Checkpoints, stop: Stop, on_event: Callable[[Event], None]
) -> RunRecord:
    started, began = now(), time.perf_counter()
    spec, execution = cell.spec, setting.execution
    device = torch.device(execution.device)
    set_flags(execution)
    provenance = environment(device, setting.code)
    data = datasets.load(spec.dataset, spec.model.image_size, setting.data_dir)
    stop.check()
    loader = make_loader(data, spec.recipe, spec.seed, device)

    def new_training() -> Training:
        model = build_model(spec.model, len(data.classes)).to(device)
        return Training(model, spec.recipe, loader.steps, device)

    past = _resume(checkpoints, spec.run_id, data.checksum, new_training)
    if past:
        training, report, sessions = past.training, past.init, past.sessions
        changes = _changes(past, provenance)
        on_event(Event(spec.run_id, resumed=_describe(training, changes[len(past.changes) :])))
    else:
        training, sessions, changes = new_training(), [], []
        # the same images at every seed, from all over a split that may be sorted by class
        probe = torch.randperm(len(data.train.labels), generator=stream(0, "probe"))[:PROBE_IMAGES]

        def progress(done: int, total: int) -> None:
            stop.check()
            on_event(Event(spec.run_id, init_done=done, init_total=total))

        report = initialize(
            training.model,
            registry.build(spec.base.name, spec.base.params, "base"),
            registry.build(spec.method.name, spec.method.params, "method") if spec.method else None,
            lambda name: stream(spec.seed, name),
            loader.plain(probe),
            progress,
        )
    from_step = training.total_steps

    def all_sessions() -> list[Session]:
        return [*sessions, Session(started=started, from_step=from_step, seconds=time.perf_counter() - began)]

    def between_steps() -> None:
        step = training.total_steps
        if stop.reason or checkpoints.due(step):
            state = {
                "run_id": spec.run_id,
                "checksum": data.checksum,
                "training": training.state_dict(),
                "init": report.model_dump(mode="json"),
                "sessions": [session.model_dump() for session in all_sessions()],
                "environment": provenance,
                "changes": changes,
            }
            checkpoints.save(state, step)
        stop.check()

    between_steps()
    train(training, loader, spec.seed, lambda row: on_event(Event(spec.run_id, epoch=row)), between_steps)
    if setting.keep_weights:
        _keep_weights(training, setting, spec.run_id, checkpoints.report)
    finished = all_sessions()
    return RunRecord(
        run_id=spec.run_id,
        study=setting.study,
        row=cell.row,
        spec=spec,
        written=now(),
        seconds=sum(session.seconds for session in finished),
        sessions=finished,
        parameters=parameter_count(training.model),
        dataset=DatasetInfo(
            train=len(data.train.labels),
            test=len(data.test.labels),
            classes=len(data.classes),
            checksum=data.checksum,
        ),
        init=report,
        history=training.history,
        weights=fingerprint(training.model),
        execution=asdict(execution),
        environment={**provenance, "changed_while_running": changes} if changes else provenance,
    )


@dataclass(frozen=True)
class _Past:
    """What a checkpoint says about the sessions before."""

    training: Training
    init: InitReport
    sessions: list[Session]
    environment: dict[str, Any]
    changes: list[dict[str, Any]]


def _resume(checkpoints: Checkpoints, run_id: str, checksum: str, new_training: Callable[[], Training]) -> _Past | None:
    """The newest checkpoint that can be used.

    Raises:
        VitinitError: the images are not those that the run began with.
    """
    for state in checkpoints.newest_first():
        training = new_training()
        try:
            if state["run_id"] != run_id:
                raise ValueError(f"it belongs to run {state['run_id']}")
            training.load_state_dict(state["training"])
            past = _Past(
                training=training,
                init=InitReport.model_validate(state["init"]),
                sessions=[Session.model_validate(session) for session in state["sessions"]],
                environment=dict(state["environment"]),
                changes=list(state["changes"]),
            )
            began_with = str(state["checksum"])
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # what torch raises for a state of another model is of many types
            checkpoints.report(f"a checkpoint in {checkpoints.folder} is passed over: {plain(str(error), 300)}")
            continue
        if began_with != checksum:
            raise VitinitError(
                f"the images have changed since the run was stopped (checksum {began_with[:12]}, now {checksum[:12]}); "
                f"put them back, or begin anew with --force {run_id}"
            )
        checkpoints.goes_on(training.total_steps)
        return past
    return None


def _changes(past: _Past, provenance: dict[str, Any]) -> list[dict[str, Any]]:
    """What has changed between the sessions of a run: where something has, its bits cannot be promised."""
    found = differences(past.environment, provenance)
    if not found:
        return past.changes
    what = {key: list(values) for key, values in found.items()}
    return [*past.changes, {"from_step": past.training.total_steps, "changed": what}]


def _describe(training: Training, changes: list[dict[str, Any]]) -> str:
    text = f"epoch {training.epoch + 1}, step {training.step}"
    if changes:
        text += f" (changed since then: {', '.join(changes[-1]['changed'])})"
    return text


def set_flags(execution: Execution) -> None:
    """Threads and determinism of this process."""
    torch.set_num_threads(execution.threads)
    if execution.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS reads it when CUDA is first used
    torch.use_deterministic_algorithms(execution.deterministic)
    torch.backends.cudnn.deterministic = execution.deterministic


def _record(outcome: RunRecord | FailureRecord, store: Store, checkpoints: Checkpoints) -> None:
    """Write the record; when the folder does not take it, put it where the user can fetch it."""
    try:
        store.write(outcome)
    except VitinitError:
        checkpoints.make_room()  # a full disk has room for a record then
        try:
            store.write(outcome)
        except VitinitError as error:
            raise VitinitError(f"{error}; {_rescue(outcome, store)}") from None


def _rescue(outcome: RunRecord | FailureRecord, store: Store) -> str:
    try:
        path = Store(tempfile.mkdtemp(prefix="vitinit-")).write(outcome)
    except (OSError, VitinitError):
        return "the run's last checkpoint is kept: the same command goes on from there"
    return f"the record is safe, put it in place when that can be written: mv {path} {store.root / outcome.study}/"


def _keep_weights(training: Training, setting: Setting, run_id: str, report: Callable[[str], None]) -> None:
    path = setting.root / setting.study / "weights" / f"{run_id}.pt"
    buffer = io.BytesIO()
    torch.save(training.model.state_dict(), buffer)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, buffer.getvalue())
    except OSError as error:
        report(f"the weights are not kept: cannot write {path}: {error.strerror or error}")


def failure(cell: Cell, setting: Setting, error: str, message: str, trace: str = "") -> FailureRecord:
    """The record of a run that did not finish."""
    return FailureRecord(
        run_id=cell.spec.run_id,
        study=setting.study,
        row=cell.row,
        spec=cell.spec,
        written=now(),
        error=error,
        message=encodable(message),
        traceback=encodable(trace),
        execution=asdict(setting.execution),
        environment=environment(torch.device(setting.execution.device), setting.code),
    )


def skip(cell: Cell, study: str, reason: str) -> SkipRecord:
    """The record of a run that cannot start here."""
    return SkipRecord(run_id=cell.spec.run_id, study=study, row=cell.row, spec=cell.spec, written=now(), reason=reason)


def now() -> str:
    """UTC, ISO 8601, to the second."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
