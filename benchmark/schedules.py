"""Schedules of the learning rate by name, as timm's factory of schedulers makes them.

Each begins with the recipe's linear warm-up, which counts as a part of its epochs.
"""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from vitinit.benchmark.fields import Count, Frozen, Positive, Share, named


class Schedule(Frozen):
    """A schedule as a value."""

    name: str

    def arguments(self, epochs: int) -> dict[str, Any]:
        """Return its arguments for timm's `create_scheduler_v2`, of a run of so many epochs."""
        return {"sched": self.name}


class Cosine(Schedule):
    """Half a cosine, from `lr` to `min_lr`."""

    name: Literal["cosine"] = "cosine"


class Polynomial(Schedule):
    """A power of the share of training that is left, from `lr` to `min_lr`."""

    name: Literal["polynomial"] = "polynomial"
    power: Positive = 2.0

    def arguments(self, epochs: int) -> dict[str, Any]:
        """Return timm's arguments; the power is its `decay_rate`."""
        return {"sched": "poly", "decay_rate": self.power}


class Linear(Schedule):
    """A straight line from `lr` to `min_lr`."""

    name: Literal["linear"] = "linear"

    def arguments(self, epochs: int) -> dict[str, Any]:
        """Return timm's arguments: those of a polynomial."""
        return {"sched": "poly", "decay_rate": 1.0}


class Step(Schedule):
    """Multiply the learning rate by `factor` every so many epochs."""

    name: Literal["step"] = "step"
    every: Count = 30
    """Epochs, counted from the beginning."""
    factor: Share = 0.1

    def arguments(self, epochs: int) -> dict[str, Any]:
        """Return timm's arguments."""
        return {"sched": "step", "decay_epochs": self.every, "decay_rate": self.factor}


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

    def arguments(self, epochs: int) -> dict[str, Any]:
        """Return timm's arguments."""
        return {"sched": "wsd", "decay_epochs": self.decaying(epochs), "decay_fn": self.shape}


AnySchedule = Annotated[
    Annotated[Cosine | Constant | Linear | Polynomial | Step | WSD, Field(discriminator="name")], BeforeValidator(named)
]
"""A schedule by its name, as `wsd`, or as a mapping of its name and fields."""
