"""Carrying one run out: claimed, in one process or several, its end recorded whatever it is; how long one takes."""

import io
import os
import shlex
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any, NoReturn

import torch
from torch import Tensor

from vitinit.benchmark.datasets import registry as datasets
from vitinit.benchmark.grids.grid import sources
from vitinit.benchmark.grids.schema import Cell
from vitinit.benchmark.models.build import build_model, halve_residuals, parameter_count
from vitinit.benchmark.records.record import DatasetInfo, EpochRow, FailureRecord, Probe, RunRecord, Session
from vitinit.benchmark.records.store import Store, kept_path
from vitinit.initializers import registry
from vitinit.initializers.apply import initialize_run
from vitinit.initializers.attention import survey
from vitinit.initializers.errors import VitinitError, cause, located, plain
from vitinit.initializers.report import InitReport
from vitinit.initializers.streams import stream
from vitinit.runners.basics import gpu
from vitinit.runners.basics.environment import CHANGES, differences, environment, set_flags, shareable, tensor_floats
from vitinit.runners.basics.setting import (
    BrokenDevice,
    End,
    Refused,
    Setting,
    Stop,
    Stopped,
    Unfinished,
    check_execution,
    failure,
    final_outcome,
    now,
)
from vitinit.runners.loaders.base import make_loader, open_data
from vitinit.runners.one_run import claims
from vitinit.runners.probes.observer import Observer, keep, masked
from vitinit.runners.probes.quantities import load_measure
from vitinit.runners.tracking.tracker import Tracking
from vitinit.runners.training.checkpoint import Checkpoints, pack, unpack
from vitinit.runners.training.distributed import ALONE, Failed, World
from vitinit.runners.training.train import Diverged, Training, fingerprint, train
from vitinit.slurm import jobs as slurm_jobs

BEGIN = "begin"
"""Message of rank 0 to the others when it has claimed a run."""


def carry_out(
    cell: Cell,
    setting: Setting,
    stop: Stop,
    on_event: Callable[[claims.Progress | str], None] = lambda event: None,
    world: World = ALONE,
) -> End:
    """Claim a run, carry it out from its newest checkpoint on, and record it.

    Whatever goes wrong in the run itself ends in a failure record. Its checkpoints stay for the next attempt, unless it
    diverged: it would do so again. A run that was stopped (it has saved), whose data cannot be read, or that is another
    launcher's, ends as `Unfinished`.

    Several processes call this for the same run and come to the same end. Rank 0 alone claims, initialises, saves,
    records and says what happens. A stop that any of them is asked for stops all at the same step. Where one of them
    fails in the middle of the training the others cannot go on, and wait for it: it records the failure, which names
    its rank, and ends its process with exit code 1, so that the launcher (torchrun, or srun --kill-on-bad-exit) ends
    the others. Whatever happens, none waits for longer than `distributed.TIMEOUT`.

    Raises:
        VitinitError: the results folder cannot be written.
        BrokenDevice: the GPU does not compute; no run has failed.
    """
    if world.rank:
        return _follow_rank_0(cell, setting, stop, world)
    folder = setting.folder(cell.run_id)

    def report(line: str) -> None:
        claim.note(shareable(line))
        on_event(line)

    tracking = Tracking(cell, setting, report, dict.fromkeys(setting.track))
    end: End
    try:
        with claims.held(folder, stop, setting.code.get("source", "")) as claim:
            recorded = final_outcome(cell, setting)
            if isinstance(recorded, RunRecord):
                claim.finish()
            if recorded:
                raise claims.Taken("another launcher has recorded it")
            world.broadcast(BEGIN)

            def on_epoch(row: EpochRow, probe: Probe | None) -> None:
                on_event(claim.report(row, cell.spec.recipe.epochs))
                tracking.epoch(row, probe)

            checkpoints = Checkpoints(folder, setting.checkpoint_minutes, report, claim.users)
            outcome: RunRecord | FailureRecord | None
            try:
                outcome = train_to_end(cell, setting, stop, world, checkpoints, report, on_epoch)
            except (Stopped, BrokenDevice, Refused):
                raise
            except Failed as error:
                outcome = failure(cell, setting, error.kind, error.message, error.trace)
            except Exception as error:
                if world.size > 1 and not isinstance(error, Diverged):
                    _end_process(cell, setting, error, world, claim)
                if lost_device := gpu.to_blame(error, world.device(setting.execution.device), folder):
                    raise lost_device from error
                outcome = failure(cell, setting, type(error).__name__, _message(error), traceback.format_exc())
            assert outcome
            if claim.lost():
                raise Stopped("another process has taken the run over")
            outcome = outcome.model_copy(update={"notes": claim.progress.notes or None})
            record(outcome, setting.store, checkpoints)
            tracking.end(outcome)
            if isinstance(outcome, RunRecord) or outcome.error == Diverged.__name__:
                claim.finish()
            end = outcome
    except claims.Taken as taken:
        end = Unfinished(cell.run_id, "elsewhere", str(taken))
    except Stopped as stopped:
        end = Unfinished(cell.run_id, "stopped", str(stopped))
    except Refused as refused:
        end = Unfinished(cell.run_id, "refused", str(refused))
    except Exception as error:
        trouble = error if isinstance(error, VitinitError) else VitinitError(f"{cell.describe()}: {cause(error)}")
        world.broadcast(trouble)
        if isinstance(error, OSError):
            raise trouble from None
        raise
    finally:
        tracking.end()
    world.broadcast(end)
    return end


def record(outcome: RunRecord | FailureRecord, store: Store, checkpoints: Checkpoints) -> None:
    """Write the record; when the folder does not take it, put it where the user can fetch it."""
    try:
        store.write(outcome)
    except VitinitError:
        checkpoints.make_room()  # a full disk has room for a record then
        try:
            store.write(outcome)
        except VitinitError as error:
            try:
                path = Store(tempfile.mkdtemp(prefix="vitinit-")).write(outcome)
            except (OSError, VitinitError):  # often on the same full disk
                raise error from None
            command = shlex.join(["mv", str(path), f"{store.root / outcome.study}/"])
            raise VitinitError(
                f"{error}; the record is safe, put it in place when that can be written: {command}"
            ) from None


def _follow_rank_0(cell: Cell, setting: Setting, stop: Stop, world: World) -> End:
    """Take the part of another rank in `carry_out`; rank 0 sends that the run begins, if it does, and its end."""
    end = world.broadcast()
    if end == BEGIN:
        try:
            train_to_end(cell, setting, stop, world)
        except (Stopped, Diverged, Failed, BrokenDevice, Refused):
            pass  # rank 0 has raised the same
        except Exception as error:
            _end_process(cell, setting, error, world)
        end = world.broadcast()
    if isinstance(end, Exception):
        raise end
    assert isinstance(end, End)
    return end


def _message(error: Exception) -> str:
    """Return the message of an error, and where it comes from if that helps to mend it."""
    return str(error) if isinstance(error, VitinitError) or gpu.out_of_memory(error) else located(error)


def _end_process(
    cell: Cell, setting: Setting, error: Exception, world: World, claim: claims.Claim | None = None
) -> NoReturn:
    """End this process: it has failed where the others wait for it.

    They fail in turn when it is gone. Only the first one records its error; a broken GPU is no error of the run, and
    the job, where this is one, asks to be started again.
    """
    text, rank = f"rank {world.rank} of {world.size}: {_message(error)}", str(world.rank)
    first = requeued = False
    try:
        assert world.store
        with suppress(RuntimeError):  # rank 0 may keep the store and be gone: it has failed before
            first = world.store.compare_set("vitinit_failed", "", rank) == rank.encode()
        lost_device = gpu.to_blame(error, world.device(setting.execution.device), setting.folder(cell.run_id))
        if lost_device or first:
            print(f"{cell.describe()}: {lost_device or text}", file=sys.stderr, flush=True)
        if lost_device:
            requeued = setting.execution.executor == "slurm" and slurm_jobs.requeue_elsewhere()
        elif first:
            setting.store.write(failure(cell, setting, type(error).__name__, text, traceback.format_exc()))
        if claim:
            claim.release()
    finally:
        os._exit(0 if requeued else 1)  # an orderly end of the process would wait for the others


PROBE_IMAGES = 64
"""Number of training images that attention at initialisation is measured on."""
ROUNDING = "processes nodes micro_batch compiled loader"
"""Execution settings that affect rounding, beside the environment, and the loader, which should not."""


def train_to_end(
    cell: Cell,
    setting: Setting,
    stop: Stop,
    world: World,
    checkpoints: Checkpoints | None = None,
    report: Callable[[str], None] = lambda line: None,
    on_epoch: Callable[[EpochRow, Probe | None], None] = lambda row, probe: None,
) -> RunRecord | None:
    """The run itself, in all processes; rank 0, which has the checkpoints, returns its record.

    Args:
        cell: the run.
        setting: where and how.
        stop: a request to stop.
        world: the processes.
        checkpoints: those of the run, in rank 0.
        report: told, in one line, about a problem that does not end the run, and what it goes on from.
        on_epoch: told about every finished epoch, and the probe after it.

    Raises:
        Stopped: it was asked to stop; rank 0 has saved where it was.
        Diverged: a loss is no longer a number.
        Failed: another process has failed; the error names its rank.
        BrokenDevice: the GPU does not compute.
    """
    this = RunInProgress(cell, setting, stop, world, report)
    with world.same_fate():
        this.open()
    with world.same_fate():
        if checkpoints and not this.resume(checkpoints):
            this.begin()
    training = this.training
    if world.size > 1:  # one of them reads or initialises, and all take its state
        content = world.broadcast(None if world.rank else pack(training.state_dict()))
        if world.rank:
            training.load_state_dict(unpack(content))
    this.from_step = training.total_steps

    def between_steps() -> None:
        reason = world.agreed(stop)
        if checkpoints and (reason or checkpoints.due()):
            checkpoints.save(this.state_dict(), training.total_steps)
        if reason:
            raise Stopped(reason)

    def epoch_ended(row: EpochRow) -> None:
        on_epoch(row, this.observer.see(training.model, row.epoch, row.score is not None))

    between_steps()
    train(training, this.loader, cell.spec.dataset.evaluate_on, epoch_ended, between_steps, this.execution.compiled)
    return this.record() if checkpoints else None


@dataclass
class RunInProgress:
    """One run in one of its processes: what it computes with, where it is, and, in rank 0, what its record will say."""

    cell: Cell
    setting: Setting
    stop: Stop
    """Asked between the parts of opening and initialising."""
    world: World = ALONE
    report: Callable[[str], None] = lambda line: None

    def open(self) -> None:
        """Open the images and build the model, which may take minutes."""
        self.started, self.began = now(), time.perf_counter()
        self.spec = spec = self.cell.spec
        recipe, execution = spec.recipe, self.setting.execution
        check_execution(spec, execution)
        device = self.world.device(execution.device)
        set_flags(execution)
        gpu.check(device)
        if recipe.precision == "tf32" and torch.cuda.get_device_capability(device) < (8, 0):  # it would be fp32
            raise VitinitError(
                f"precision tf32: {torch.cuda.get_device_name(device)} has none, Ampere and newer GPUs do"
            )
        with tensor_floats(recipe.precision):
            self.environment = environment(str(device), self.setting.code)
        try:  # files of one's own may have changed since the launch
            for name in self.setting.measures:
                load_measure(name)
            self.environment["initializers"] = sources(spec.base, spec.method)
            self.dataset = datasets.get(spec.dataset.name)
            self.own_files = self.dataset.own_files(spec.dataset)
            self.data = open_data(
                spec.dataset, spec.model.image_size, self.setting.data_dir, execution.loader, str(device), spec.seed,
                recipe.crops, self.setting.sharing,
            )  # fmt: skip
        except VitinitError as error:
            raise Refused(str(error)) from None
        if (images := len(self.data.train.labels)) < recipe.batch_size:
            raise Refused(f"batch_size {recipe.batch_size} is more than the {images} training images")
        self.stop.check()
        self.loader = make_loader(self.data, recipe, spec.seed, device, self.world)
        self.loader.metric = self.dataset.main_metric
        self.execution = replace(execution, loader=self.loader.name)
        self.affects_bits = {
            **self.environment,
            "execution": {key: getattr(self.execution, key) for key in ROUNDING.split()},
        }
        self.base = registry.build(spec.base.name, spec.base.params, "base")
        self.method = registry.build(spec.method.name, spec.method.params, "method") if spec.method else None
        self.training = self.new_training()
        leads = self.world.rank == 0  # the others observe nothing
        layers, _, unknown = survey(self.training.model)
        probing, keeps = leads and self.setting.probes and bool(layers or unknown), leads and self.setting.keep_maps
        if keeps and spec.model.attention_maps is None:
            keeps = False
            self.report(f"attention maps are not kept: {spec.model.label} has none of one known shape")
        self.observer = Observer(self.loader, probing, (0, recipe.epochs) if keeps else (), self.report)
        self.from_step = 0
        self.init: InitReport
        self.sessions: list[Session] = []
        """Sessions before this one."""

    def new_training(self) -> Training:
        """With whatever weights the model was built with."""
        loader, micro_batch = self.loader, self.execution.micro_batch
        model = build_model(self.spec.model, loader.classes, loader.dense, self.spec.seed).to(loader.device)
        for initializer in filter(None, (self.base, self.method)):
            initializer.freeze(model)
        if self.spec.recipe.residuals == "half":
            halve_residuals(model)
        return Training(model, self.spec.recipe, loader.steps, loader.device, self.world, micro_batch)

    def resume(self, checkpoints: Checkpoints) -> bool:
        """Go on from the newest checkpoint that can be used, if there is one.

        Raises:
            Refused: the images are not those that the run began with, or a checkpoint cannot be read now.
        """
        for state in checkpoints.newest_first():
            try:
                self.load_state_dict(state)
            except Exception as error:  # what torch raises for a state of another model is of many types
                if gpu.out_of_memory(error) or isinstance(error, VitinitError):
                    raise
                self.report(f"a checkpoint in {checkpoints.folder} is passed over: {plain(str(error), 300)}")
                self.training = self.new_training()
            else:
                return True
        return False

    def begin(self) -> None:
        """Carry out base and method."""
        loader, seed, images = self.loader, self.spec.seed, len(self.data.train.labels)
        own = self.dataset.images is None  # a dataset of the user
        for line in self.data.duplicates() if own and self.data.train.images is not None else ():
            self.report(line)
        # the same places in the subset at every seed, from all over a split that may be sorted by class
        probe = torch.randperm(images, generator=stream(0, "probe"))[:PROBE_IMAGES]

        def training_images(count: int) -> Tensor:
            return loader.plain(torch.randint(images, (count,), generator=stream(seed, "init/images")))

        self.init, targets_LHNN = initialize_run(
            self.training.model,
            self.base,
            self.method,
            lambda name: stream(seed, name),
            loader.plain(probe),
            registry.Job(lambda done, total: self.stop.check(), training_images),
        )
        self.observer.targets_LHNN = targets_LHNN
        self.observer.see(self.training.model, 0)

    def state_dict(self) -> dict[str, Any]:
        """All that the future of the run depends on: what a checkpoint holds."""
        return {
            "run_id": self.cell.run_id,
            "checksum": self.data.checksum,
            "training": self.training.state_dict(),
            "init": self.init.model_dump(mode="json"),
            "sessions": [session.model_dump() for session in self.all_sessions()],
            "affects_bits": self.affects_bits,
            "changes": self.environment.get(CHANGES, []),
            "observed": self.observer.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take the run up where `state_dict` was called, in a session of its own.

        Raises:
            Refused: the images are not those that the run began with.
            Exception: this is not the state of this run; of many types.
        """
        if state["run_id"] != self.cell.run_id:
            raise ValueError(f"it belongs to run {state['run_id']}")
        if state["checksum"] != self.data.checksum:
            raise Refused(
                "the images have changed since the run was stopped, or JPEGs were prepared for FFCV (checksum "
                f"{state['checksum'][:12]}, now {self.data.checksum[:12]}); put them back, or remove "
                f"unfinished/{self.cell.run_id}"
            )
        training = self.training
        training.load_state_dict(state["training"])
        self.init = InitReport.model_validate(state["init"])
        epochs = [epoch for epoch in (0, *self.spec.recipe.evaluated_epochs) if epoch <= training.epoch]
        self.observer.load_state_dict(state["observed"], epochs)
        self.sessions = [Session.model_validate(session) for session in state["sessions"]]
        if state["changes"]:
            self.environment[CHANGES] = state["changes"]
        resumed = f"goes on from epoch {training.epoch + 1}, step {training.step}"
        if changes := differences(state["affects_bits"], self.affects_bits):
            what = {key: list(values) for key, values in changes.items()}
            self.environment.setdefault(CHANGES, []).append({"from_step": training.total_steps, "changed": what})
            resumed += f" (changed since then: {', '.join(changes)})"
        self.report(resumed)

    def all_sessions(self) -> list[Session]:
        """All parts of the run, from its start or from a checkpoint on, up to now."""
        seconds = time.perf_counter() - self.began
        return [*self.sessions, Session(started=self.started, from_step=self.from_step, seconds=seconds)]

    def record(self) -> RunRecord:
        """The record of a run that has ended; what is to be kept beside it is written first."""
        cell, spec, setting, training = self.cell, self.spec, self.setting, self.training
        place = setting.root, setting.study, cell.run_id
        model, averaged = training.model, training.ema.module if training.ema else None
        weights, sessions = fingerprint(model), self.all_sessions()
        files = {}
        for name, kept in (("weights", model), ("ema_weights", averaged)):
            if setting.keep_weights and kept:
                content = io.BytesIO()
                torch.save(kept.state_dict(), content)
                files[name] = keep("weights", kept_path(*place, name), content.getvalue(), self.report)
        files["maps"] = self.observer.keep(weights, kept_path(*place, "maps"))
        return RunRecord(
            run_id=cell.run_id,
            study=setting.study,
            row=cell.row,
            spec=spec,
            written=now(),
            seconds=sum(session.seconds for session in sessions),
            sessions=sessions,
            parameters=parameter_count(model),
            dataset=DatasetInfo(
                train=len(self.data.train.labels),
                **{spec.dataset.evaluate_on: len(self.data.held_out.labels)},
                classes=len(self.data.classes),
                checksum=self.data.checksum,
                **self.own_files,
            ),
            init=self.init,
            history=training.history,
            probes=self.observer.probes,
            masked=masked(model, self.loader, self.execution.micro_batch) if self.observer.probing else [],
            correct=training.correct,
            weights=weights,
            ema_weights=fingerprint(averaged) if averaged else None,
            files={name: digest for name, digest in files.items() if digest},
            execution=asdict(self.execution),
            environment=self.environment,
        )


def measured_seconds(cell: Cell, setting: Setting) -> float:
    """Initialise a run and train two steps of it; return about how long the whole will take."""
    times = [time.perf_counter()]
    run = RunInProgress(cell, setting, Stop())
    run.open()
    run.begin()

    def between_steps() -> None:
        float(run.training.loss_sum)  # waits for a GPU
        times.append(time.perf_counter())
        if len(times) == 3:
            raise Stopped

    with suppress(Stopped):
        train(run.training, run.loader, between_steps=between_steps)
    recipe, held_out = cell.spec.recipe, len(run.data.held_out.labels)
    # a step without backward pass takes about a third
    evaluation = len(recipe.evaluated_epochs) * held_out / recipe.batch_size / 3
    return times[1] - times[0] + (recipe.epochs * run.loader.steps + evaluation) * (times[2] - times[1])
