"""One RunSpec -> one record."""

from __future__ import annotations

import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Literal, NoReturn

import torch
from torch import Tensor

from benchmark.grid import Cell
from benchmark.models import build_model, parameter_count
from benchmark.record import DatasetInfo, EpochRow, FailureRecord, RunRecord, Session, SkipRecord
from benchmark.spec import RunSpec
from benchmark.store import Store, maps_path
from initializers import registry
from initializers.errors import VitinitError
from initializers.initialize import initialize
from initializers.registry import Resources
from runners import claims
from runners.checkpoint import Checkpoints, Interval
from runners.distributed import ALONE, Failed, World
from runners.environment import encodable, environment
from runners.keeping import attention_before, keep_weights
from runners.loaders import make_loader, open_data
from runners.resume import Begun, resume, share_state
from runners.solutions import Solutions
from runners.stop import Stop, Stopped
from runners.streams import stream
from runners.train import Diverged, Training, fingerprint, train

BEGIN = "begin"
"""What rank 0 says to the others when it has claimed a run."""

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
    processes: int = 1
    """How many carry out a run together; `threads` are those of each."""
    nodes: int = 1
    """On so many machines."""
    micro_batch: int | None = None
    """At most this many images at once in a process, gradients adding up to those of the batch; None: all its share."""
    compiled: bool = False
    """Train through torch.compile."""
    loader: str = "auto"
    """Where batches come from: see `loaders.open_data`. A record names the loader that it came to."""


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
    keep_maps: bool = False
    """Keep attention maps before and after training: see `benchmark.maps`."""
    grace_s: float = 10.0
    """Seconds that runs have to save and end when the launch is stopped."""
    reuse_solutions: bool = True
    """Read what a slow initialiser has solved before for the same inputs on such a machine."""
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
    cell: Cell,
    setting: Setting,
    stop: Stop,
    on_event: Callable[[Event], None] = lambda event: None,
    world: World = ALONE,
) -> RunRecord | FailureRecord:
    """Claim a run, carry it out from its newest checkpoint on, and record it.

    Whatever goes wrong in the run itself ends in a failure record. Its checkpoints stay for the next attempt, unless it
    diverged: it would do so again.

    Several processes call this for the same run and come to the same end. Rank 0 alone claims, initialises, saves,
    records and tells events. A stop that any of them is asked for stops all at the same step. Where one of them fails
    in the middle of the training the others cannot go on, and wait for it: it records the failure, which names its
    rank, and ends its process with exit code 1, so that the launcher (torchrun, or srun --kill-on-bad-exit) ends the
    others. Whatever happens, none waits for longer than `distributed.TIMEOUT`.

    Raises:
        Taken: another process is carrying it out, or has done so since this study was launched.
        Stopped: it was asked to stop; it has saved where it was.
        VitinitError: the results folder cannot be written.
    """
    if world.rank:
        return _help(cell, setting, stop, world)
    end: RunRecord | FailureRecord | Exception
    try:
        end = _claimed(cell, setting, stop, on_event, world)
    except Exception as error:
        known = isinstance(error, claims.Taken | Stopped | VitinitError | OSError)
        world.broadcast(error if known else VitinitError(f"{type(error).__name__} in rank 0: {error}"))
        raise
    world.broadcast(end)
    return end


def _help(cell: Cell, setting: Setting, stop: Stop, world: World) -> RunRecord | FailureRecord:
    """What the other ranks do in `carry_out`; rank 0 has two messages: that the run begins, if it does, and its end."""
    end = world.broadcast()
    if end == BEGIN:
        try:
            _run(cell, setting, None, stop, lambda event: None, world)
        except (Stopped, Diverged, Failed):
            pass  # rank 0 has raised the same
        except Exception as error:
            _give_up(cell, setting, error, world)
        end = world.broadcast()
    if isinstance(end, Exception):
        raise end
    assert isinstance(end, RunRecord | FailureRecord)
    return end


def _claimed(
    cell: Cell, setting: Setting, stop: Stop, on_event: Callable[[Event], None], world: World
) -> RunRecord | FailureRecord:
    store, run_id = Store(setting.root), cell.spec.run_id
    with claims.held(claims.folder(setting.root, setting.study, run_id), stop) as claim:
        recorded = store.outcome(setting.study, run_id)
        if isinstance(recorded, RunRecord):
            claim.finish()
            raise claims.Taken("another launcher has recorded it")
        if isinstance(recorded, FailureRecord) and recorded.written != setting.retried.get(run_id):
            raise claims.Taken("another launcher has tried it, and it failed")
        world.broadcast(BEGIN)

        def tell(event: Event) -> None:
            if event.epoch:
                row = event.epoch
                claim.update(row.epoch, cell.spec.recipe.epochs, row.test_top1, row.seconds)
            on_event(event)

        checkpoints = Checkpoints(
            claim.path.parent, setting.checkpoint, lambda text: on_event(Event(run_id, trouble=text))
        )
        outcome: RunRecord | FailureRecord | None
        try:
            outcome = _run(cell, setting, checkpoints, stop, tell, world)
            assert outcome is not None
        except Stopped:
            raise
        except Failed as error:
            outcome = failure(cell, setting, error.kind, error.message, error.trace)
        except Exception as error:
            if world.size > 1 and not isinstance(error, Diverged):
                _give_up(cell, setting, error, world, claim)
            outcome = failure(cell, setting, type(error).__name__, str(error), traceback.format_exc())
            if isinstance(error, Diverged):
                checkpoints.remove()
        if claim.lost():
            raise Stopped("another process has taken the run over")
        _record(outcome, store, checkpoints)
        if outcome.status == "done":
            claim.finish()
    return outcome


def _give_up(
    cell: Cell, setting: Setting, error: Exception, world: World, claim: claims.Claim | None = None
) -> NoReturn:
    """End this process: it has failed where the others wait for it.

    They fail in turn when it is gone. Only the first one records its error.
    """
    text = f"{world.name()}: {error}"
    try:
        if world.first_to_fail():
            print(f"{cell.describe()}: {type(error).__name__}: {text}", file=sys.stderr, flush=True)
            Store(setting.root).write(failure(cell, setting, type(error).__name__, text, traceback.format_exc()))
        if claim:
            claim.release()
    finally:
        os._exit(1)  # an orderly end of the process would wait for the others


def _run(
    cell: Cell,
    setting: Setting,
    checkpoints: Checkpoints | None,
    stop: Stop,
    on_event: Callable[[Event], None],
    world: World,
) -> RunRecord | None:
    """The run itself, in all processes; rank 0, which has the checkpoints, returns its record."""
    started, began = now(), time.perf_counter()
    spec = cell.spec
    with world.same_fate():
        check_whole_batches(spec, setting.execution)
        device = world.device(setting.execution.device)
        set_flags(setting.execution)
        provenance = environment(device, setting.code)
        data = open_data(spec.dataset, spec.model.image_size, setting.data_dir, setting.execution.loader, str(device))
        stop.check()
        loader = make_loader(data, spec.recipe, spec.seed, device, world.shard)
        execution = replace(setting.execution, loader=loader.name)

    method = registry.build(spec.method.name, spec.method.params, "method") if spec.method else None

    def new_training() -> Training:
        model = build_model(spec.model, len(data.classes)).to(device)
        if method:
            method.freeze(model)
        return Training(model, spec.recipe, loader.steps, device)

    def new() -> Begun:
        training = new_training()
        # the same images at every seed, from all over a split that may be sorted by class
        probe = torch.randperm(len(data.train.labels), generator=stream(0, "probe"))[:PROBE_IMAGES]

        def training_images(count: int) -> Tensor:
            numbers = torch.randint(len(data.train.labels), (count,), generator=stream(spec.seed, "init/images"))
            return loader.plain(numbers)

        def progress(done: int, total: int) -> None:
            stop.check()
            on_event(Event(spec.run_id, init_done=done, init_total=total))

        solutions = Solutions(provenance)
        report = initialize(
            training.model,
            registry.build(spec.base.name, spec.base.params, "base"),
            method,
            lambda name: stream(spec.seed, name),
            loader.plain(probe),
            progress,
            Resources(solutions if setting.reuse_solutions else registry.solve_anew, training_images),
        )
        took = {"seconds": report.seconds + solutions.seconds, "cached": solutions.reused}
        return Begun(training, report.model_copy(update=took))

    begun = before = None
    with world.same_fate():
        if checkpoints:
            past = resume(checkpoints, spec.run_id, data.checksum, provenance, asdict(execution), new_training)
            if past:
                on_event(Event(spec.run_id, resumed=past.resumed))
            begun = past or new()
            if setting.keep_maps:  # of a run that is resumed, what it began with is made once more
                initial = (new() if past else begun).training.model
                before = attention_before(initial, loader, len(data.test.labels))
    training = begun.training if begun else new_training()
    share_state(training, world)
    from_step = training.total_steps

    def all_sessions() -> list[Session]:
        earlier = begun.sessions if begun else []
        return [*earlier, Session(started=started, from_step=from_step, seconds=time.perf_counter() - began)]

    def between_steps() -> None:
        step = training.total_steps
        reason = world.agreed(stop)
        if checkpoints and begun and (reason or checkpoints.due(step)):
            state = {
                "run_id": spec.run_id,
                "checksum": data.checksum,
                "training": training.state_dict(),
                "init": begun.init.model_dump(mode="json"),
                "sessions": [session.model_dump() for session in all_sessions()],
                "environment": provenance,
                "execution": asdict(execution),
                "changes": begun.changes,
            }
            checkpoints.save(state, step)
        if reason:
            raise Stopped(reason)

    between_steps()
    train(
        training,
        loader,
        spec.seed,
        lambda row: on_event(Event(spec.run_id, epoch=row)),
        between_steps,
        world,
        execution.micro_batch,
        execution.compiled,
    )
    if not checkpoints or not begun:
        return None
    weights = fingerprint(training.model)
    if setting.keep_weights:
        path = setting.root / setting.study / "weights" / f"{spec.run_id}.pt"
        keep_weights(training.model, path, checkpoints.report)
    if before:
        path = maps_path(setting.root, setting.study, spec.run_id)
        before.keep(training.model, weights, path, checkpoints.report)
    finished, changes = all_sessions(), begun.changes
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
        init=begun.init,
        history=training.history,
        weights=weights,
        execution=asdict(execution),
        environment={**provenance, "changed_while_running": changes} if changes else provenance,
    )


def check_whole_batches(spec: RunSpec, execution: Execution) -> None:
    """Refuse what would change the numbers of a model with BatchNorm, which takes mean and variance over a batch.

    Raises:
        VitinitError: its batches would be cut.
    """
    micro_batch = execution.micro_batch or spec.recipe.batch_size
    if spec.model.batch_norm and (execution.processes > 1 or micro_batch < spec.recipe.batch_size):
        how = f"in {execution.processes} processes" if execution.processes > 1 else f"with --micro-batch {micro_batch}"
        raise VitinitError(
            f"a {spec.model.arch} cannot be trained {how}: its BatchNorm takes the statistics of the whole batch of "
            f"{spec.recipe.batch_size}; train it in one process, without --micro-batch"
        )


def set_flags(execution: Execution) -> None:
    """Threads and determinism of this process."""
    torch.set_num_threads(execution.threads)
    if execution.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS reads it when CUDA is first used
    torch.use_deterministic_algorithms(execution.deterministic)
    torch.backends.cudnn.deterministic = execution.deterministic
    if execution.compiled:
        from torch._inductor import config as inductor

        inductor.fallback_random = True  # dropout as without torch.compile, from the seeds of `train`


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
