"""Schedules of the learning rate by name, through timm's schedulers. Imports timm only where one is built.

Each begins with the recipe's linear warm-up, which counts as a part of its epochs.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import PlainValidator, SerializeAsAny, ValidationError

from vitinit.benchmark.fields import Count, Frozen, Positive, Share
from vitinit.initializers.errors import explain, unknown_name

if TYPE_CHECKING:
    from timm.scheduler.scheduler import Scheduler
    from torch.optim import Optimizer


class Schedule(Frozen):
    """A schedule as a value. Subclass it, give it a name, add it to `SCHEDULES`."""

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
        raise NotImplementedError

    def check(self, epochs: int, warmup_epochs: int) -> None:
        """Refuse a number of epochs that it does not fit into.

        Raises:
            ValueError: says why.
        """


class Cosine(Schedule):
    """Half a cosine, from `lr` to `min_lr`."""

    name: Literal["cosine"] = "cosine"

    def build(self, optimizer: Optimizer, epochs: int, unit: int, lr_min: float, **common: Any) -> Scheduler:
        """Return timm's CosineLRScheduler."""
        from timm.scheduler import CosineLRScheduler

        # a recipe of one epoch has a schedule that does nothing, and no user has to know
        logging.getLogger(CosineLRScheduler.__module__).setLevel(logging.ERROR)
        return CosineLRScheduler(optimizer, t_initial=epochs * unit, lr_min=lr_min, **common)


class Polynomial(Schedule):
    """A power of the share of training that is left, from `lr` to `min_lr`."""

    name: Literal["polynomial"] = "polynomial"
    power: Positive = 2.0

    def build(self, optimizer: Optimizer, epochs: int, unit: int, lr_min: float, **common: Any) -> Scheduler:
        """Return timm's PolyLRScheduler."""
        from timm.scheduler import PolyLRScheduler

        return PolyLRScheduler(optimizer, t_initial=epochs * unit, lr_min=lr_min, power=self.power, **common)


class Linear(Schedule):
    """A straight line from `lr` to `min_lr`."""

    name: Literal["linear"] = "linear"

    def build(self, optimizer: Optimizer, epochs: int, unit: int, lr_min: float, **common: Any) -> Scheduler:
        """Return timm's PolyLRScheduler with power 1."""
        return Polynomial(power=1.0).build(optimizer, epochs, unit, lr_min, **common)


class Step(Schedule):
    """Multiply the learning rate by `factor` every so many epochs."""

    name: Literal["step"] = "step"
    every: Count = 30
    """Epochs, counted from the beginning."""
    factor: Share = 0.1

    def build(self, optimizer: Optimizer, epochs: int, unit: int, lr_min: float, **common: Any) -> Scheduler:
        """Return timm's StepLRScheduler."""
        from timm.scheduler import StepLRScheduler

        warmup = {**common, "warmup_prefix": False}
        return StepLRScheduler(optimizer, decay_t=self.every * unit, decay_rate=self.factor, **warmup)


class Constant(Schedule):
    """`lr` after the warm-up."""

    name: Literal["constant"] = "constant"

    def build(self, optimizer: Optimizer, epochs: int, unit: int, lr_min: float, **common: Any) -> Scheduler:
        """Return timm's StepLRScheduler with factor 1."""
        return Step(every=1, factor=1.0).build(optimizer, epochs, unit, lr_min, **common)


class WSD(Schedule):
    """Warm-up, stable phase at `lr`, decay to `min_lr` (arXiv 2404.06395)."""

    name: Literal["wsd"] = "wsd"
    cooldown: Share = 0.2
    """Share of the epochs in which it decays, rounded to whole epochs, at least one."""
    shape: Literal["1-sqrt", "linear", "cosine"] = "1-sqrt"
    """Shape of the decay: 1 minus the root of its progress (arXiv 2405.18392), a straight line, half a cosine."""

    def build(self, optimizer: Optimizer, epochs: int, unit: int, lr_min: float, **common: Any) -> Scheduler:
        """Return timm's WSDLRScheduler."""
        from timm.scheduler import WSDLRScheduler

        return WSDLRScheduler(
            optimizer,
            t_initial=epochs * unit - common["warmup_t"],  # timm's is without the warm-up
            decay_t=self._decaying(epochs) * unit,
            lr_min=lr_min,
            decay_fn=self.shape,
            **common,
        )

    def check(self, epochs: int, warmup_epochs: int) -> None:
        """Refuse a decay that would begin within the warm-up."""
        if warmup_epochs + self._decaying(epochs) > epochs:
            raise ValueError(
                f"schedule wsd decays in {self._decaying(epochs)} of {epochs} epochs, and {warmup_epochs} are warm-up: "
                "give it more epochs, or a smaller cooldown"
            )

    def _decaying(self, epochs: int) -> int:
        return max(1, round(self.cooldown * epochs))


SCHEDULES: dict[str, type[Schedule]] = {
    str(each.model_fields["name"].default): each for each in (Cosine, Constant, Linear, Polynomial, Step, WSD)
}
COSINE = Cosine()


def _of_its_name(value: Any) -> Schedule:
    """`wsd` and `{name: wsd, cooldown: 0.1}` become the schedule that they name."""
    if isinstance(value, Schedule):
        return value
    fields = {"name": value} if isinstance(value, str) else value
    if not isinstance(fields, dict) or "name" not in fields:
        raise ValueError("needs a name: NAME, or {name: NAME, ...}")
    name = str(fields["name"])
    if name not in SCHEDULES:
        raise ValueError(str(unknown_name("schedule", name, SCHEDULES)))
    try:
        return SCHEDULES[name].model_validate(fields)
    except ValidationError as error:
        raise ValueError(str(explain(error, f"schedule {name!r}", SCHEDULES[name]))) from None


AnySchedule = Annotated[SerializeAsAny[Schedule], PlainValidator(_of_its_name)]
"""One of `SCHEDULES`, by its name or as a mapping of its name and fields."""
