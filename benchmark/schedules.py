"""Schedules of the learning rate by name, through timm's schedulers. Imports timm only where one is built.

Each begins with the recipe's linear warm-up, which counts as a part of its epochs.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from vitinit.benchmark.fields import Count, Frozen, Positive, Share

if TYPE_CHECKING:
    from timm.scheduler.scheduler import Scheduler
    from torch.optim import Optimizer


class Schedule(Frozen):
    """A schedule as a value."""

    name: str

    def build(self, optimizer: Optimizer, epochs: int, unit: int, lr_min: float, **common: Any) -> Scheduler:
        """Return timm's scheduler.

        Args:
            optimizer: its learning rates are set.
            epochs: of the run.
            unit: how often the learning rate changes in an epoch.
            lr_min: where a schedule that decays to an end ends.
            common: further arguments of timm's schedulers, warm-up among them.
        """
        from timm import scheduler

        # a recipe of one epoch has a schedule that does nothing, and no user has to know
        logging.getLogger("timm.scheduler.cosine_lr").setLevel(logging.ERROR)
        length, common = epochs * unit, {**common, "lr_min": lr_min}
        if isinstance(self, WSD):  # timm's length is without the warm-up
            own: dict[str, Any] = {"decay_t": self.decaying(epochs) * unit, "decay_fn": self.shape}
            return scheduler.WSDLRScheduler(optimizer, t_initial=length - common["warmup_t"], **own, **common)
        if isinstance(self, Polynomial | Linear):
            power = self.power if isinstance(self, Polynomial) else 1.0
            return scheduler.PolyLRScheduler(optimizer, t_initial=length, power=power, **common)
        if isinstance(self, Step | Constant):
            every, factor = (self.every, self.factor) if isinstance(self, Step) else (1, 1.0)
            step = {**common, "warmup_prefix": False}
            del step["lr_min"]
            return scheduler.StepLRScheduler(optimizer, decay_t=every * unit, decay_rate=factor, **step)
        return scheduler.CosineLRScheduler(optimizer, t_initial=length, **common)


class Cosine(Schedule):
    """Half a cosine, from `lr` to `min_lr`."""

    name: Literal["cosine"] = "cosine"


class Polynomial(Schedule):
    """A power of the share of training that is left, from `lr` to `min_lr`."""

    name: Literal["polynomial"] = "polynomial"
    power: Positive = 2.0


class Linear(Schedule):
    """A straight line from `lr` to `min_lr`."""

    name: Literal["linear"] = "linear"


class Step(Schedule):
    """Multiply the learning rate by `factor` every so many epochs."""

    name: Literal["step"] = "step"
    every: Count = 30
    """Epochs, counted from the beginning."""
    factor: Share = 0.1


class Constant(Schedule):
    """`lr` after the warm-up."""

    name: Literal["constant"] = "constant"


class WSD(Schedule):
    """Warm-up, stable phase at `lr`, decay to `min_lr` (arXiv 2404.06395)."""

    name: Literal["wsd"] = "wsd"
    cooldown: Share = 0.2
    """Share of the epochs in which it decays, rounded to whole epochs, at least one."""
    shape: Literal["1-sqrt", "linear", "cosine"] = "1-sqrt"
    """Shape of the decay: 1 minus the root of its progress (arXiv 2405.18392), a straight line, half a cosine."""

    def decaying(self, epochs: int) -> int:
        """Return the number of epochs in which it decays."""
        return max(1, round(self.cooldown * epochs))


AnySchedule = Annotated[
    Annotated[Cosine | Constant | Linear | Polynomial | Step | WSD, Field(discriminator="name")],
    BeforeValidator(lambda value: {"name": value} if isinstance(value, str) else value),
]
"""A schedule by its name, as `wsd`, or as a mapping of its name and fields."""
