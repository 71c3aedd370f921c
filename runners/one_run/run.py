"""One RunSpec -> one record: data and model are opened, a run begins or goes on, is trained, and is recorded."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from vitinit.benchmark.datasets import registry as datasets
from vitinit.benchmark.grids.fitting import sources
from vitinit.benchmark.grids.schema import Cell
from vitinit.benchmark.models.build import build_model, parameter_count
from vitinit.benchmark.records.epoch import EpochRow
from vitinit.benchmark.records.record import DatasetInfo, RunRecord, Session
from vitinit.benchmark.records.store import maps_path, weights_path
from vitinit.initializers import registry
from vitinit.initializers.attention import has_attention
from vitinit.initializers.foreign import contained
from vitinit.initializers.initialize import initialize
from vitinit.initializers.registry import Initializer, Resources
from vitinit.initializers.streams import stream
from vitinit.runners.basics import gpu
from vitinit.runners.basics.environment import environment, gpu_usage, set_flags, tensor_floats
from vitinit.runners.basics.setting import Event, Execution, Setting, check_execution
from vitinit.runners.basics.stop import Stop, Stopped
from vitinit.runners.loaders import OpenedData, make_loader, open_data
from vitinit.runners.loaders.base import Loader
from vitinit.runners.one_run.observer import Observer
from vitinit.runners.one_run.outcome import now
from vitinit.runners.one_run.resume import Begun, resume, share_state
from vitinit.runners.one_run.solutions import Solutions
from vitinit.runners.probes.keeping import keep_weights
from vitinit.runners.probes.masking import masked
from vitinit.runners.probes.take import refusal
from vitinit.runners.training.checkpoint import Checkpoints
from vitinit.runners.training.distributed import World
from vitinit.runners.training.train import Training, fingerprint, train

TRIED = 2
"""As many images show whether attention can be measured."""
PROBE_IMAGES = 64
"""Number of training images that attention at initialisation is measured on."""


def run(
    cell: Cell,
    setting: Setting,
    checkpoints: Checkpoints | None,
    stop: Stop,
    on_event: Callable[[Event], None],
    world: World,
) -> RunRecord | None:
    """The run itself, in all processes; rank 0, which has the checkpoints, returns its record.

    Raises:
        Stopped: it was asked to stop; rank 0 has saved where it was.
        Diverged: a loss is no longer a number.
        Failed: another process has failed; the error names its rank.
        BrokenDevice: the GPU does not compute.
    """
    session = _Session()
    with world.same_fate():
        opened = _open(cell, setting, stop, world)
    begun = observer = None
    with world.same_fate():
        if checkpoints:
            begun = _go_on(opened, checkpoints, on_event) or _begin(opened, setting, stop, on_event)
            observer = _observe(opened, setting, begun, checkpoints)
    training = begun.training if begun else opened.new_training()
    share_state(training, world)
    session.from_step = training.total_steps

    def between_steps() -> None:
        reason = world.agreed(stop)
        if checkpoints and begun and (reason or checkpoints.due(training.total_steps)):
            checkpoints.save(_state(opened, begun, observer, session), training.total_steps)
        if reason:
            raise Stopped(reason)

    def epoch_ended(row: EpochRow) -> None:
        if observer:
            observer.see(training.model, row.epoch, evaluated=row.score is not None)
        probe = observer.probes[-1] if setting.track and observer and observer.probes else None
        probe = probe if probe and probe.epoch == row.epoch else None
        on_event(Event(cell.run_id, epoch=row, probe=probe))

    between_steps()
    train(
        training,
        opened.loader,
        cell.spec.seed,
        cell.spec.dataset.evaluate_on,
        epoch_ended,
        between_steps,
        world,
        opened.execution.micro_batch,
        opened.execution.compiled,
    )
    if not checkpoints or not begun:
        return None
    return _record(opened, setting, begun, observer, session, checkpoints)


@dataclass
class _Session:
    """This part of a run, from its start or from a checkpoint on."""

    started: str = field(default_factory=now)
    began: float = field(default_factory=time.perf_counter)
    from_step: int = 0

    def after(self, begun: Begun) -> list[Session]:
        """All sessions of the run up to now."""
        seconds = time.perf_counter() - self.began
        return [*begun.sessions, Session(started=self.started, from_step=self.from_step, seconds=seconds)]


@dataclass(frozen=True)
class _Opened:
    """Inputs of a run before it has a model."""

    cell: Cell
    device: torch.device
    data: OpenedData
    loader: Loader
    execution: Execution
    """With the loader that was chosen."""
    provenance: dict[str, Any]

    @cached_property
    def base(self) -> Initializer:
        base = self.cell.spec.base
        return registry.build(base.name, base.params, "base")

    @cached_property
    def method(self) -> Initializer | None:
        method = self.cell.spec.method
        return registry.build(method.name, method.params, "method") if method else None

    @cached_property
    def unmeasured(self) -> str:
        """Reason why attention of a model by name cannot be measured; empty where it can, or where it has none."""
        spec = self.cell.spec.model
        if not spec.by_name:
            return ""
        model = build_model(spec, len(self.data.classes)).to(self.device)
        return refusal(model, self.loader.plain(torch.arange(min(TRIED, len(self.data.train.labels)))))

    def new_training(self) -> Training:
        """With whatever weights the model was built with."""
        dense = self.loader.dense
        model = build_model(self.cell.spec.model, len(self.data.classes), dense, self.cell.spec.seed).to(self.device)
        for part in (self.base, self.method):
            if part:
                with contained(f"{part.kind} {part.name!r}"):
                    part.freeze(model)
        return Training(model, self.cell.spec.recipe, self.loader.steps, self.device)


def _open(cell: Cell, setting: Setting, stop: Stop, world: World) -> _Opened:
    spec = cell.spec
    check_execution(spec, setting.execution)
    device = world.device(setting.execution.device)
    set_flags(setting.execution)
    gpu.check(device)
    if spec.recipe.precision == "tf32":
        gpu.check_tf32(device)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    with tensor_floats(spec.recipe.precision):
        provenance = {**environment(device, setting.code), "initializers": sources(spec.base, spec.method)}
    loader_name = setting.execution.loader
    size, cropped = spec.model.image_size, spec.recipe.crops
    data = open_data(
        spec.dataset, size, setting.data_dir, loader_name, str(device), spec.seed, cropped, runs=setting.sharing
    )
    stop.check()
    loader = make_loader(data, spec.recipe, spec.seed, device, world.shard)
    loader.metric = datasets.get(spec.dataset.name).main_metric
    return _Opened(cell, device, data, loader, replace(setting.execution, loader=loader.name), provenance)


def _go_on(opened: _Opened, checkpoints: Checkpoints, on_event: Callable[[Event], None]) -> Begun | None:
    """The run where it was saved; None where it was not."""
    run_id, execution = opened.cell.run_id, asdict(opened.execution)
    past = resume(checkpoints, run_id, opened.data.checksum, opened.provenance, execution, opened.new_training)
    if past:
        on_event(Event(run_id, resumed=past.resumed))
    return past


def _begin(opened: _Opened, setting: Setting, stop: Stop, on_event: Callable[[Event], None]) -> Begun:
    """The run at its start: base and method are carried out."""
    spec, loader = opened.cell.spec, opened.loader
    images = len(opened.data.train.labels)
    training = opened.new_training()
    # the same places in the subset at every seed, from all over a split that may be sorted by class
    probe = torch.randperm(images, generator=stream(0, "probe"))[:PROBE_IMAGES]

    def training_images(count: int) -> Tensor:
        return loader.plain(torch.randint(images, (count,), generator=stream(spec.seed, "init/images")))

    def progress(done: int, total: int) -> None:
        stop.check()
        on_event(Event(opened.cell.run_id, init_done=done, init_total=total))

    solutions = Solutions(opened.provenance)
    report, targets_LHNN = initialize(
        training.model,
        opened.base,
        opened.method,
        lambda name: stream(spec.seed, name),
        loader.plain(probe),
        progress,
        Resources(solutions if setting.reuse_solutions else registry.solve_anew, training_images),
        measure=not opened.unmeasured,
    )
    took = {"seconds": report.seconds + solutions.seconds, "cached": solutions.reused}
    return Begun(training, report.model_copy(update=took), targets_LHNN=targets_LHNN)


def _observe(opened: _Opened, setting: Setting, begun: Begun, checkpoints: Checkpoints) -> Observer | None:
    """None where the model has no attention to look at."""
    spec, attends = opened.cell.spec, has_attention(begun.training.model) and not opened.unmeasured
    if opened.unmeasured and (setting.probes or setting.keep_maps):
        checkpoints.report(f"probes are left out: {opened.unmeasured}")
    snapshots_at = (0, *setting.maps_at, spec.recipe.epochs) if setting.keep_maps else ()
    if snapshots_at and spec.model.attention_maps is None:
        why = "layers that differ in heads or tokens" if attends else "no attention"
        why = "none that its spec tells the shape of" if attends and spec.model.by_name else why
        checkpoints.report(f"attention maps are not kept: {spec.model.label} has {why}")
        snapshots_at = ()
    if not attends:
        return None
    images = len(opened.data.held_out.labels)
    observer = Observer(opened.loader, images, setting.probes, snapshots_at, checkpoints.report)
    observer.begin(begun)
    return observer


def _state(opened: _Opened, begun: Begun, observer: Observer | None, session: _Session) -> dict[str, Any]:
    """All that the future of the run depends on: what a checkpoint holds."""
    return {
        "run_id": opened.cell.run_id,
        "checksum": opened.data.checksum,
        "training": begun.training.state_dict(),
        "init": begun.init.model_dump(mode="json"),
        "sessions": [each.model_dump() for each in session.after(begun)],
        "environment": opened.provenance,
        "execution": asdict(opened.execution),
        "changes": begun.changes,
        "observed": observer.state_dict() if observer else {},
    }


def _record(
    opened: _Opened,
    setting: Setting,
    begun: Begun,
    observer: Observer | None,
    session: _Session,
    checkpoints: Checkpoints,
) -> RunRecord:
    """The record of a run that has ended; what is to be kept beside it is written first."""
    cell, spec, data, training = opened.cell, opened.cell.spec, opened.data, begun.training
    weights, averaged = fingerprint(training.model), training.ema.module if training.ema else None
    for model, ema in ((training.model, False), (averaged, True)):
        if setting.keep_weights and model:
            keep_weights(model, weights_path(setting.root, setting.study, cell.run_id, ema), checkpoints.report)
    if observer:
        observer.keep(weights, maps_path(setting.root, setting.study, cell.run_id))
    probes = observer.probes if observer else []
    images, held_out = len(data.train.labels), data.held_out.labels
    sessions, changes = session.after(begun), begun.changes
    return RunRecord(
        run_id=cell.run_id,
        study=setting.study,
        row=cell.row,
        spec=spec,
        written=now(),
        seconds=sum(each.seconds for each in sessions),
        sessions=sessions,
        parameters=parameter_count(training.model),
        dataset=DatasetInfo(
            train=images,
            **{spec.dataset.evaluate_on: len(held_out)},
            classes=len(data.classes),
            checksum=data.checksum,
        ),
        init=begun.init,
        history=training.history,
        probes=probes,
        masked=masked(
            training.model, opened.loader, held_out, spec.recipe.epochs * images, opened.execution.micro_batch
        )
        if probes
        else [],
        correct=training.correct,
        weights=weights,
        ema_weights=fingerprint(averaged) if averaged else None,
        execution=asdict(opened.execution),
        environment={
            **opened.provenance,
            **({"changed_while_running": changes} if changes else {}),
            **gpu_usage(opened.device, setting.sharing),
        },
    )
