"""Metrics: their base class, sums over images, which batches and processes add up, and values of them; and registry.

Every `Metric` of a file in this folder is found. Imports no torch.
"""

import re
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

from vitinit.initializers.errors import VitinitError, unknown_name
from vitinit.initializers.plugins import Registry, concrete

if TYPE_CHECKING:
    from torch import Tensor as Tensor
else:  # annotations name it, for all metrics; torch takes seconds to import
    Tensor = Any

OF_LABELS, OF_MASKS = MAIN = ("top1", "miou")
"""Main metrics of datasets that name none; records have a field for each."""
AVERAGED = "ema_"
"""Begins the name of a metric of the averaged weights, as `ema_top1`."""


class Metric(ABC):
    """A metric of held-out images. Subclass it in a file of this folder; torch is imported inside its methods.

    Where a dataset has masks, each pixel counts as one of the N images of a batch.
    """

    name: ClassVar[str]
    """In records and on the command line."""
    label: ClassVar[str]
    """In tables and figures."""
    of: ClassVar[tuple[str, ...]] = ("labels",)
    """Kinds of datasets that it is measured on: `labels`, `masks`."""
    at_the_end: ClassVar[bool] = False
    """Only measured after the last epoch."""
    percent: ClassVar[bool] = True
    """Values are 0 to 100, which tables and figures can show."""
    lower_is_better: ClassVar[bool] = False

    def fits(self, classes: int) -> bool:
        """Return True where it says something of this many classes."""
        return True

    @abstractmethod
    def sums(self, logits_NK: Tensor, labels_N: Tensor) -> Tensor:
        """Return the sums of a batch, float64, on the device of the logits.

        Args:
            logits_NK: of the model, in its precision.
            labels_N: int64; -100 is not to count.
        """

    def values(self, sums: Tensor) -> dict[str, float]:
        """Return the value by its name, or several by names that begin with it, from the sums over all images.

        Of two sums it is the share, in percent, that the first has of the second.

        Args:
            sums: float64, on the CPU.
        """
        part, whole = sums.tolist()
        return {self.name: 100 * part / whole}


REGISTRY: Registry[type[Metric]] = Registry("metric", (__package__,), accepts=concrete(Metric), collect=True)
"""`vitinit run --metric` adds those of files of one's own."""


def fitting(classes: int, dense: bool, last: bool) -> list[Metric]:
    """Return the metrics that a run measures.

    Args:
        classes: how many there are.
        dense: the dataset has masks.
        last: after the last epoch.
    """
    labels = "masks" if dense else "labels"
    metrics = [metric() for metric in REGISTRY.entries() if labels in metric.of and (last or not metric.at_the_end)]
    return [metric for metric in metrics if metric.fits(classes)]


def get(name: str) -> Metric:
    """Return the metric that a value of this name belongs to: `class_accuracy` of `class_accuracy_3`, `top1` of
    `ema_top1`.

    Raises:
        VitinitError: there is none.
    """
    known = REGISTRY.by_name()
    for metric in (name, re.sub(r"_\d+$", "", name), name.removeprefix(AVERAGED)):
        if metric in known:
            return known[metric]()
    raise unknown_name("metric", name, known)


def metric_label(name: str) -> str:
    """Return the label of a value in tables and figures."""
    metric = get(name)
    if name == AVERAGED + metric.name:
        return f"{metric.label} of averaged weights"
    return f"{metric.label} {name.removeprefix(metric.name).removeprefix('_')}".strip()


def main_metric(name: str | None, dense: bool, classes: int | None) -> str:
    """Return the main metric of a dataset.

    Args:
        name: as the dataset names it, if it does.
        dense: the dataset has masks.
        classes: how many there are, where that is known.

    Raises:
        VitinitError: there is no such metric, or it cannot be a main metric there.
    """
    if name is None:
        return OF_MASKS if dense else OF_LABELS
    metric, labels = get(name), "masks" if dense else "labels"
    if metric.name != name or metric.at_the_end or not metric.percent or labels not in metric.of:
        raise VitinitError(f"metric {name!r} cannot be the main one: that is one number in percent after every epoch")
    if classes is not None and not metric.fits(classes):
        raise VitinitError(f"metric {name!r} says nothing of {classes} classes")
    return name
