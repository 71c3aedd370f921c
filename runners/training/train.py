"""The training loop, top to bottom."""

import base64
import hashlib
import logging
import math
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, Literal

import numpy as np
import torch
from timm.scheduler import create_scheduler_v2
from timm.utils import ModelEmaV3
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from vitinit.benchmark.fields import parsed
from vitinit.benchmark.image_files.arrays import IGNORED
from vitinit.benchmark.metrics.registry import fitting, main_metric
from vitinit.benchmark.optimizers import registry as optimizers
from vitinit.benchmark.records.record import EpochRow
from vitinit.benchmark.spec import ADAMW, Recipe
from vitinit.initializers.errors import VitinitError, plain
from vitinit.initializers.streams import derive
from vitinit.runners.basics.environment import tensor_floats
from vitinit.runners.loaders.base import Loader
from vitinit.runners.training.distributed import ALONE, World

# A recipe of one epoch has a schedule that does nothing, and no user has to know.
logging.getLogger("timm.scheduler.cosine_lr").setLevel(logging.ERROR)
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
"""Types of the precisions that are torch's autocast."""
POSITION = "epoch", "step", "epoch_seconds", "correct"
"""Attributes of a `Training` that are plain values."""


class Diverged(VitinitError):
    """The training or held-out loss is not a finite number."""


class Training:
    """A model in training: everything that its future depends on, and the position it has reached.

    Parameters without `requires_grad` are unknown to the optimiser: neither its steps nor weight decay change them.
    Random streams and the learning rate are functions of seed, recipe and position: they have no state to keep.

    Attributes:
        epoch: epochs finished.
        step: optimiser steps taken in the epoch that has begun.
        loss_sum: sum of their training losses.
        epoch_seconds: time that they took.
        ema: moving average of the weights, from the first step on; None where the recipe has none.
        history: one row for each finished epoch.
        correct: images classified correctly at the last evaluation, as `RunRecord.correct` has them.
        parameters: of the model, those without `requires_grad` too.
        world: the processes that train together.
        micro_batch: at most this many images at once in this process; None: all of its part of a batch.
    """

    def __init__(
        self,
        model: nn.Module,
        recipe: Recipe,
        steps_per_epoch: int,
        device: torch.device,
        world: World = ALONE,
        micro_batch: int | None = None,
    ) -> None:
        self.model, self.recipe, self.steps_per_epoch = model, recipe, steps_per_epoch
        self.world, self.micro_batch = world, micro_batch
        self.parameters = [*model.parameters()]  # to look for them takes a twentieth of a small model's step
        if recipe.optimizer == ADAMW:  # in torch's fused implementation; the others are timm's
            self.optimizer: torch.optim.Optimizer = torch.optim.AdamW(
                optimizers.groups(model, recipe), lr=recipe.lr, betas=recipe.betas, eps=recipe.eps, fused=True
            )
        else:
            self.optimizer = optimizers.build(model, recipe)
        self.scheduler, _ = create_scheduler_v2(
            self.optimizer,
            num_epochs=recipe.epochs,
            min_lr=recipe.min_lr,
            warmup_lr=recipe.warmup_lr,
            warmup_epochs=recipe.warmup_epochs,
            step_on_epochs=recipe.schedule_per == "epoch",
            updates_per_epoch=steps_per_epoch,
            **recipe.schedule.arguments(recipe.epochs),
        )
        self.scaler = torch.amp.GradScaler(device.type, enabled=recipe.precision == "fp16")
        self.epoch = self.step = 0
        self.ema = None if recipe.ema is None else ModelEmaV3(model, decay=recipe.ema)
        self.loss_sum = torch.zeros((), device=device)
        self.epoch_seconds = 0.0
        self.history: list[EpochRow] = []
        self.correct: str | None = None

    @property
    def total_steps(self) -> int:
        """Optimiser steps taken since the run began."""
        return self.epoch * self.steps_per_epoch + self.step

    def state_dict(self) -> dict[str, Any]:
        """Tensors and plain values, to be saved between two steps or while the model is evaluated."""
        return {
            **{name: part.state_dict() for name, part in self._parts().items()},
            **{name: getattr(self, name) for name in POSITION},
            "loss_sum": self.loss_sum,
            "history": [row.model_dump() for row in self.history],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up the training where `state_dict` was called.

        Raises:
            ValueError, KeyError, TypeError, RuntimeError: this is not the state of such a training.
        """
        for name, part in self._parts().items():
            part.load_state_dict(state[name])
        for name in POSITION:
            setattr(self, name, state[name])
        self.loss_sum.copy_(state["loss_sum"])
        self.history = [EpochRow.model_validate(row) for row in state["history"]]

    def _parts(self) -> dict[str, Any]:
        """Return all that has a state of its own."""
        parts = {"model": self.model, "optimizer": self.optimizer, "scaler": self.scaler}
        return {**parts, "ema": self.ema.module} if self.ema else parts


def train(
    training: Training,
    loader: Loader,
    evaluate_on: Literal["test", "val"] = "test",
    on_epoch: Callable[[EpochRow], None] = lambda row: None,
    between_steps: Callable[[], None] = lambda: None,
    compile: bool = False,
) -> None:
    """Train to the last epoch and evaluate on all held-out images after the epochs that the recipe says.

    Dropout draws from its own named stream, re-seeded at every step; the global generator is left as it was.

    Args:
        training: where to begin, the same in all processes; changed in place, and the same in all after every step.
        loader: the images, this process's part of each batch.
        evaluate_on: what the held-out images are.
        on_epoch: told about every finished epoch.
        between_steps: called wherever `training.state_dict()` may be saved, equally often in all processes; what it
            raises ends the training.
        compile: train through torch.compile; evaluation stays as it is.

    Raises:
        Diverged: a loss is NaN or infinite at the end of an epoch.
        VitinitError: the model cannot be compiled.
    """
    model, recipe, device, world = training.model, training.recipe, loader.device, training.world
    with (
        torch.random.fork_rng(devices=[device] if device.type == "cuda" else []),
        tensor_floats(recipe.precision),
        compiled(model, compile) as forward,
    ):
        parallel = warmed_up(world.parallel(forward), training, loader.image_size)
        for epoch in range(training.epoch, recipe.epochs):
            start = time.perf_counter() - training.epoch_seconds
            training.scheduler.step(epoch)
            model.train()
            for batch in loader.train(epoch, training.step):
                training.scheduler.step_update(training.total_steps)
                update(training, parallel, batch, loader.seed)
                training.epoch_seconds = time.perf_counter() - start
                between_steps()
            losses = {"training": float(training.loss_sum) / loader.steps}
            training_seconds = time.perf_counter() - start
            scores: dict[str, Any] = {}
            if epoch + 1 in recipe.evaluated_epochs:
                how = loader, between_steps, world, training.micro_batch, epoch + 1 == recipe.epochs
                metrics, training.correct = evaluate(model, *how)
                if loader.metric not in metrics:
                    raise VitinitError(f"metric {loader.metric!r} is not measured of {loader.classes} classes")
                losses[evaluate_on] = metrics["loss"]
                own = "loss", main_metric(None, loader.dense, None)
                scores = {f"{evaluate_on}_{name}": metrics[name] for name in own}
                scores["metrics"] = {name: value for name, value in metrics.items() if name not in own}
                scores["headline"] = loader.metric if loader.metric in scores["metrics"] else None
                if training.ema:
                    averaged, _ = evaluate(training.ema.module, *how)
                    losses["averaged weights"] = averaged["loss"]
                    scores |= {"ema_loss": averaged["loss"], "ema_score": averaged[loader.metric]}
            for name, loss in losses.items():
                if not math.isfinite(loss):
                    raise Diverged(f"epoch {epoch + 1}: {name} loss {loss}")
            fields = dict(
                epoch=epoch + 1,
                lr=max(group["lr"] for group in training.optimizer.param_groups),  # layer_decay leaves the last layer's
                train_loss=losses["training"],
                seconds=time.perf_counter() - start,
                images_per_s=loader.steps * recipe.batch_size / training_seconds,
                **scores,
            )
            row = parsed(EpochRow, fields, f"epoch {epoch + 1}")
            training.history.append(row)
            training.epoch, training.step, training.epoch_seconds = epoch + 1, 0, 0.0
            training.loss_sum.zero_()
            on_epoch(row)
            between_steps()


def update(training: Training, parallel: nn.Module, batch: tuple[Tensor, Tensor], seed: int) -> None:
    """Take one optimiser step on this process's part of a batch.

    Every micro batch counts by its images, whatever their number here and elsewhere, so that the gradients of all
    processes add up to the one of the mean loss over the whole batch: `parallel` takes the mean of their gradients.
    """
    optimizer, scaler, recipe, world = training.optimizer, training.scaler, training.recipe, training.world
    parts, loss_sum = micro_batches(*batch, training.micro_batch), torch.zeros_like(training.loss_sum)
    optimizer.zero_grad()
    for number, (images, targets) in enumerate(parts):
        position = (world.rank, number) if world.size > 1 or len(parts) > 1 else ()
        dropout_seed = derive(seed, "dropout", training.epoch, training.step, *position)
        torch.default_generator.manual_seed(dropout_seed)  # torch.manual_seed formats the stack for each kind of device
        if images.is_cuda:
            torch.cuda.manual_seed(dropout_seed)
        with nullcontext() if number == len(parts) - 1 or world.size == 1 else parallel.no_sync():  # type: ignore[operator]
            with autocast(recipe, images.device):
                loss = training_loss(parallel(images), targets, recipe.label_smoothing)
            loss = loss * (len(images) / recipe.batch_size)
            scaler.scale(loss * world.size).backward()
        loss_sum += loss.detach()
    # From here on gradients are those of the whole batch, infinite ones too: all processes clip and scale alike.
    if recipe.clip_grad:
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(training.parameters, recipe.clip_grad)
    scaler.step(optimizer)
    scaler.update()
    training.loss_sum += world.sum(loss_sum)
    training.step += 1
    if training.ema and training.total_steps == 1:
        training.ema.set(training.model)  # the average begins with the weights after the first step
    elif training.ema:
        training.ema.update(training.model)


@contextmanager
def compiled(model: nn.Module, wanted: bool) -> Iterator[nn.Module]:
    """Yield the model for forward passes: compiled if wanted, with the model's own parameters; else the model itself.

    Raises:
        VitinitError: it cannot be compiled as a whole.
    """
    if not wanted:
        yield model
        return
    from torch._dynamo.exc import TorchDynamoException

    torch.compiler.reset()  # dynamo compiles eight shapes in a process, and nothing after them
    try:
        # fallback_random: dropout draws what it draws without torch.compile, from the seeds of `train`
        yield torch.compile(model, dynamic=False, fullgraph=True, options={"fallback_random": True})  # type: ignore[misc]
    except TorchDynamoException as error:
        raise VitinitError(
            f"torch.compile cannot compile {type(model).__name__}: {plain(str(error), 300)}; without --compile it "
            "trains"
        ) from error


def training_loss(logits: Tensor, targets: Tensor, label_smoothing: float) -> Tensor:
    """Mean cross-entropy of a batch, or of a part of one.

    Of masks it is the mean over all pixels, in which those that are `IGNORED` count as 0: parts of a batch, weighted by
    their images, then add up to the whole.

    Args:
        logits: B x classes, or B x S x S x classes.
        targets: labels, int64, B, or shares of classes, B x classes; or masks, uint8, B x S x S.
        label_smoothing: 0 is none.
    """
    if targets.ndim < 3:
        return F.cross_entropy(logits, targets, label_smoothing=label_smoothing)
    # pixels are in a row, as labels are: on a GPU, a sum over images is not the same twice
    pixels, labels = logits.flatten(0, 2), targets.flatten().long()
    summed = F.cross_entropy(pixels, labels, ignore_index=IGNORED, reduction="sum", label_smoothing=label_smoothing)
    return summed / targets.numel()


def micro_batches(images: Tensor, targets: Tensor, size: int | None) -> list[tuple[Tensor, Tensor]]:
    """A batch cut into parts of at most `size` images."""
    size = size or len(images)
    return list(zip(images.split(size), targets.split(size), strict=True))


def warmed_up(parallel: nn.Module, training: Training, image_size: int) -> nn.Module:
    """The same, after one backward pass that changes nothing.

    After the first one DistributedDataParallel groups gradients anew, in the order in which they came, and groups
    decide in which order processes are summed. Without this pass, the first step after a resume would be rounded in
    another way than the same step of a run that was not stopped.
    """
    if isinstance(parallel, DistributedDataParallel):
        images = torch.zeros(1, 3, image_size, image_size).to(next(parallel.parameters()))
        with warnings.catch_warnings(), autocast(training.recipe, images.device):
            warnings.filterwarnings("ignore", "Grad strides do not match")  # those of the class token; said once
            (parallel.train()(images).sum() * 0).backward()
        training.optimizer.zero_grad()
    return parallel


@torch.inference_mode()
def evaluate(
    model: nn.Module,
    loader: Loader,
    between_batches: Callable[[], None] = lambda: None,
    world: World = ALONE,
    micro_batch: int | None = None,
    last: bool = True,
) -> tuple[dict[str, float], str | None]:
    """Compute the metrics of all held-out images of all processes by name, the loss among them.

    Args:
        model: left in evaluation mode.
        loader: has the images.
        between_batches: called equally often in all processes.
        world: the processes.
        micro_batch: see `train`.
        last: after the last epoch.

    Returns:
        And the images that are classified correctly, as `RunRecord.correct` has them; None of masks.
    """
    model.eval()
    device, metrics = loader.device, fitting(loader.classes, loader.dense, last)
    nothing = torch.zeros(0, loader.classes, device=device), torch.zeros(0, dtype=torch.long, device=device)
    sums = [metric.sums(*nothing) for metric in metrics]
    correct = [torch.zeros(0, dtype=torch.bool, device=device)]
    for batch in world.in_step(loader.held_out()):
        for images, targets in micro_batches(*batch, micro_batch) if batch else ():
            with autocast(loader.recipe, device):
                logits = model(images)
            if loader.dense:  # each pixel counts as an image
                logits, targets = logits.flatten(0, -2), targets.flatten().long()
                targets = targets.masked_fill(targets == IGNORED, -100)
            else:
                correct.append(logits.argmax(-1) == targets)
            for sums_of_metric, metric in zip(sums, metrics, strict=True):
                sums_of_metric += metric.sums(logits.clone(), targets.clone())  # which it may change
        between_batches()
    values: dict[str, float] = {}
    all_sums = world.sum(torch.cat(sums)).cpu().split([len(sums_of_metric) for sums_of_metric in sums])
    for sums_of_metric, metric in zip(all_sums, metrics, strict=True):
        given = metric.values(sums_of_metric)
        if metric.percent and any(value < 0 or value > 100 for value in given.values()):
            raise VitinitError(f"metric {metric.name!r} gave {given}: in percent, or it says percent = False")
        if any(name in values or not f"{name}_".startswith(f"{metric.name}_") for name in given):
            raise VitinitError(
                f"metric {metric.name!r} gave {given}: a name is its own, or begins with it and _, and is no other's"
            )
        values |= given
    if loader.dense:
        return values, None
    whole = np.concatenate(world.gather(torch.cat(correct).cpu().numpy()))  # parts are in order of rank
    return values, base64.b64encode(np.packbits(whole).tobytes()).decode()


def autocast(recipe: Recipe, device: torch.device) -> torch.autocast:
    """The recipe's precision: bf16 and fp16 cast what is safe to cast, for the others it is off."""
    dtype = DTYPES.get(recipe.precision)
    return torch.autocast(device.type, dtype, enabled=dtype is not None)


def fingerprint(model: nn.Module) -> str:
    """sha256 over the names, types, shapes and bytes of every parameter and buffer that belongs to the model's state.

    Others (timm's ConViT keeps the offsets between tokens) follow from the model.
    """
    digest = hashlib.sha256()
    for name, tensor in model.state_dict().items():
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
