"""One RunSpec -> one record."""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import NoReturn

import torch
from torch import Tensor

from benchmark.grids.grid import Cell
from benchmark.models.build import build_model, parameter_count
from benchmark.records.record import DatasetInfo, EpochRow, FailureRecord, RunRecord, Session
from benchmark.records.store import Store, maps_path
from initializers import registry
from initializers.attention import has_attention
from initializers.errors import VitinitError
from initializers.initialize import initialize
from initializers.registry import Resources
from runners.basics.environment import environment, set_flags
from runners.basics.setting import Event, Setting, check_whole_batches
from runners.basics.stop import Stop, Stopped
from runners.basics.streams import stream
from runners.loaders import make_loader, open_data
from runners.one_run import claims
from runners.one_run.observer import Observer
from runners.one_run.outcome import failure, now, record
from runners.one_run.resume import Begun, resume, share_state
from runners.one_run.solutions import Solutions
from runners.probes.keeping import keep_weights
from runners.probes.masking import masked
from runners.training.checkpoint import Checkpoints
from runners.training.distributed import ALONE, Failed, World
from runners.training.train import Diverged, Training, fingerprint, train

BEGIN = "begin"
"""What rank 0 says to the others when it has claimed a run."""

PROBE_IMAGES = 64
"""How many training images attention at initialisation is measured on."""


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
                claim.update(row.epoch, cell.spec.recipe.epochs, row.top1, row.seconds)
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
        record(outcome, store, checkpoints)
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
        loader_name = setting.execution.loader
        data = open_data(spec.dataset, spec.model.image_size, setting.data_dir, loader_name, str(device), spec.seed)
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
        report, targets_LHNN = initialize(
            training.model,
            registry.build(spec.base.name, spec.base.params, "base"),
            method,
            lambda name: stream(spec.seed, name),
            loader.plain(probe),
            progress,
            Resources(solutions if setting.reuse_solutions else registry.solve_anew, training_images),
        )
        took = {"seconds": report.seconds + solutions.seconds, "cached": solutions.reused}
        return Begun(training, report.model_copy(update=took), targets_LHNN=targets_LHNN)

    begun = observer = None
    with world.same_fate():
        if checkpoints:
            past = resume(checkpoints, spec.run_id, data.checksum, provenance, asdict(execution), new_training)
            if past:
                on_event(Event(spec.run_id, resumed=past.resumed))
            begun = past or new()
            if has_attention(begun.training.model):
                snapshots_at = (0, *setting.maps_at, spec.recipe.epochs) if setting.keep_maps else ()
                observer = Observer(loader, len(data.held_out.labels), setting.probes, snapshots_at, checkpoints.report)
                observer.begin(begun)
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
                "observed": observer.state_dict() if observer else {},
            }
            checkpoints.save(state, step)
        if reason:
            raise Stopped(reason)

    def epoch_ended(row: EpochRow) -> None:
        if observer:
            observer.see(training.model, row.epoch, evaluated=row.top1 is not None)
        on_event(Event(spec.run_id, epoch=row))

    between_steps()
    train(
        training,
        loader,
        spec.seed,
        spec.dataset.evaluate_on,
        epoch_ended,
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
    if observer:
        observer.keep(weights, maps_path(setting.root, setting.study, spec.run_id))
    probes = observer.probes if observer else []
    images_seen = spec.recipe.epochs * len(data.train.labels)
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
            **{spec.dataset.evaluate_on: len(data.held_out.labels)},
            classes=len(data.classes),
            checksum=data.checksum,
        ),
        init=begun.init,
        history=training.history,
        probes=probes,
        masked=masked(training.model, loader, data.held_out.labels, images_seen) if probes else [],
        weights=weights,
        execution=asdict(execution),
        environment={**provenance, "changed_while_running": changes} if changes else provenance,
    )
