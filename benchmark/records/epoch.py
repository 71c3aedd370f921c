"""One epoch in a record, and what is measured after it. Imports no torch."""

from __future__ import annotations

from operator import attrgetter
from typing import Annotated, Any

from pydantic import Field, FiniteFloat, NonNegativeFloat, PositiveInt, SerializerFunctionWrapHandler, model_serializer

from vitinit.benchmark.fields import Frozen
from vitinit.benchmark.metrics.registry import AVERAGED, OF_LABELS, OF_MASKS, metric_label

Percent = Annotated[float, Field(ge=0, le=100)]
LATER = ("test_miou", "val_miou", "metrics", "headline", "ema_loss", "ema_score")
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
    metrics: dict[str, FiniteFloat] = Field(default_factory=dict)
    """All other metrics of the same images, by name: see `benchmark/metrics/`."""
    headline: str | None = None
    """The one of `metrics` that is the dataset's main metric; None where that is top-1 or mean IoU."""
    ema_loss: NonNegativeFloat | None = None
    """Loss of the moving average of the weights, on the same images; None where the recipe has no `ema`."""
    ema_score: Percent | None = None
    """Score of the same, as `score`."""
    seconds: NonNegativeFloat
    images_per_s: NonNegativeFloat | None = None
    """Training images a second, loading included, evaluation not; None in records of before this was taken."""

    @model_serializer(mode="wrap")
    def _as_recorded(self, fields_of: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields: dict[str, Any] = fields_of(self)
        return {name: value for name, value in fields.items() if value not in (None, {}) or name not in LATER}

    @property
    def field(self) -> str:
        """The metric that has a field: mean IoU of masks, otherwise top-1."""
        return OF_LABELS if self.test_miou is None and self.val_miou is None else OF_MASKS

    @property
    def metric(self) -> str:
        """The main metric; top-1 where nothing is measured."""
        return self.headline or self.field

    @property
    def score(self) -> float | None:
        """The main metric on test images, or on the validation part, in percent."""
        return self.value(self.metric)

    def value(self, metric: str) -> float | None:
        """Return a metric by its name; None where it was not measured."""
        if metric in (AVERAGED + "loss", AVERAGED + self.metric):
            return self.ema_loss if metric == AVERAGED + "loss" else self.ema_score
        if metric not in ("loss", self.field):
            return self.metrics.get(metric)
        test, val = (getattr(self, f"{split}_{metric}") for split in ("test", "val"))
        found: float | None = val if test is None else test
        return found

    def scored(self, digits: int = 1) -> str:
        """The score for people, `top-1 54.3%`; empty where there is none."""
        return "" if self.score is None else f"{metric_label(self.metric)} {self.score:.{digits}f}%"


RESULTS = ("test_loss", "test_top1", "test_miou", "val_loss", "val_top1", "val_miou")
results = attrgetter(*RESULTS)
"""All that is measured after an epoch, in this order."""
