"""The training loop, top to bottom."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from timm.optim import param_groups_weight_decay
from timm.scheduler import CosineLRScheduler
from torch import Tensor, nn
from torch.nn import functional as F

from benchmark.models import VisionModel
from benchmark.record import EpochRow
from benchmark.spec import Recipe
from runners.loaders.resident import ResidentLoader
from runners.streams import derive

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


class Diverged(Exception):
    """The training or test loss is not a finite number."""


def train(
    model: VisionModel,
    loader: ResidentLoader,
    recipe: Recipe,
    seed: int,
    on_epoch: Callable[[EpochRow], None] = lambda row: None,
) -> list[EpochRow]:
    """Train in place and evaluate on the whole test split after every epoch.

    Dropout draws from its own named stream, re-seeded at every step; the global generator is left as it was.

    Raises:
        Diverged: a loss is NaN or infinite at the end of an epoch.
    """
    device = loader.device
    groups = param_groups_weight_decay(model, recipe.weight_decay, no_weight_decay_list=model.no_weight_decay())
    optimizer = torch.optim.AdamW(groups, lr=recipe.lr, betas=recipe.betas, eps=recipe.eps, fused=True)
    per_step = recipe.schedule_per == "step"
    unit = loader.steps if per_step else 1
    scheduler = CosineLRScheduler(
        optimizer,
        t_initial=recipe.epochs * unit,
        lr_min=recipe.min_lr,
        warmup_t=recipe.warmup_epochs * unit,
        warmup_lr_init=recipe.warmup_lr,
        t_in_epochs=not per_step,
    )
    scaler = torch.amp.GradScaler(device.type, enabled=recipe.precision == "fp16")
    history: list[EpochRow] = []
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        for epoch in range(recipe.epochs):
            start = time.perf_counter()
            scheduler.step(epoch)
            model.train()
            total = torch.zeros((), device=device)
            for step, (images, labels) in enumerate(loader.train(epoch)):
                scheduler.step_update(epoch * loader.steps + step)
                torch.manual_seed(derive(seed, "dropout", epoch, step))
                with autocast(recipe, device):
                    loss = F.cross_entropy(model(images), labels, label_smoothing=recipe.label_smoothing)
                optimizer.zero_grad()
                scaler.scale(loss).backward()
                if recipe.clip_grad:
                    scaler.unscale_(optimizer)
                    nn.utils.clip_grad_norm_(model.parameters(), recipe.clip_grad)
                scaler.step(optimizer)
                scaler.update()
                total += loss.detach()
            train_loss = float(total) / loader.steps
            test_loss, test_top1 = evaluate(model, loader, recipe)
            if not torch.isfinite(torch.tensor([train_loss, test_loss])).all():
                raise Diverged(f"epoch {epoch + 1}: training loss {train_loss}, test loss {test_loss}")
            history.append(
                EpochRow(
                    epoch=epoch + 1,
                    lr=optimizer.param_groups[0]["lr"],
                    train_loss=train_loss,
                    test_loss=test_loss,
                    test_top1=test_top1,
                    seconds=time.perf_counter() - start,
                )
            )
            on_epoch(history[-1])
    return history


@torch.inference_mode()
def evaluate(model: nn.Module, loader: ResidentLoader, recipe: Recipe) -> tuple[float, float]:
    """Mean cross-entropy (no label smoothing) and top-1 in percent over the whole test split."""
    model.eval()
    loss = torch.zeros((), dtype=torch.float64, device=loader.device)
    correct = torch.zeros((), dtype=torch.int64, device=loader.device)
    count = 0
    for images, labels in loader.test():
        with autocast(recipe, loader.device):
            logits: Tensor = model(images)
        loss += F.cross_entropy(logits.float(), labels, reduction="sum")
        correct += (logits.argmax(-1) == labels).sum()
        count += len(labels)
    return float(loss) / count, 100 * int(correct) / count


def autocast(recipe: Recipe, device: torch.device) -> torch.autocast:
    """The recipe's precision: fp32 is off, the others cast what is safe to cast."""
    return torch.autocast(device.type, DTYPES[recipe.precision], enabled=recipe.precision != "fp32")
