"""One epoch in a record, and what is measured after it. Imports no torch."""

from __future__ import annotations

from operator import attrgetter
from typing import Annotated, Any, Literal

from pydantic import Field, NonNegativeFloat, PositiveInt, SerializerFunctionWrapHandler, model_serializer

from vitinit.benchmark.fields import Frozen

Percent = Annotated[float, Field(ge=0, le=100)]
Metric = Literal["top1", "miou"]
"""What a run is measured by: its dataset decides."""
METRICS: dict[Metric, str] = {"top1": "top-1", "miou": "mean IoU"}
"""In words."""
LATER = ("test_miou", "val_miou", "ema_loss", "ema_score")
"""Fields that came after the first records: where there is nothing in them, a record does not have them."""


class EpochRow(Frozen):
    """One epoch; `epoch` counts from 1."""

    epoch: PositiveInt
    lr: NonNegativeFloat
    train_loss: NonNegativeFloat
    test_loss: NonNegativeFloat | None = None
    """None, as is `test_top1`, after an epoch without evaluation, and where the run is evaluated on `val`."""
    test_top1: Percent | None = None
    val_loss: NonNegativeFloat | None = None
    """On the part of the training split that is held out for validation; None where the run is evaluated on `test`."""
    val_top1: Percent | None = None
    test_miou: Percent | None = None
    """Mean over classes of intersection over union, in percent: of a dataset with masks, in place of top-1."""
    val_miou: Percent | None = None
    ema_loss: NonNegativeFloat | None = None
    """Of the moving average of the weights, on the same images; None where the recipe has no `ema`."""
    ema_score: Percent | None = None
    """Of the same, as `score`."""
    seconds: NonNegativeFloat
    images_per_s: NonNegativeFloat | None = None
    """Training images a second, loading included, evaluation not; None in records of before this was taken."""

    @model_serializer(mode="wrap")
    def _as_recorded(self, fields_of: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields: dict[str, Any] = fields_of(self)
        return {name: value for name, value in fields.items() if value is not None or name not in LATER}

    @property
    def metric(self) -> Metric:
        """What `score` is; top-1 where there is none."""
        return "top1" if self.test_miou is None and self.val_miou is None else "miou"

    @property
    def score(self) -> float | None:
        """What is measured on test images, or on the validation part, in percent; a run has one of all these only."""
        test, val = (self.test_top1, self.val_top1) if self.metric == "top1" else (self.test_miou, self.val_miou)
        return val if test is None else test

    def scored(self, digits: int = 1) -> str:
        """The score for people, `top-1 54.3%`; empty where there is none."""
        return "" if self.score is None else f"{METRICS[self.metric]} {self.score:.{digits}f}%"


RESULTS = ("test_loss", "test_top1", "test_miou", "val_loss", "val_top1", "val_miou")
results = attrgetter(*RESULTS)
"""All that is measured after an epoch, in this order."""
