"""Registry of metrics: every `Metric` of a file in this folder. Imports no torch."""

from __future__ import annotations

import re

from vitinit.benchmark.metrics.metric import Metric
from vitinit.initializers.errors import VitinitError, unknown_name
from vitinit.initializers.plugins import Registry, concrete

OF_LABELS, OF_MASKS = MAIN = ("top1", "miou")
"""Main metrics of datasets that name none; records have a field for each."""
AVERAGED = "ema_"
"""Begins the name of a metric of the averaged weights, as `ema_top1`."""


REGISTRY: Registry[type[Metric]] = Registry("metric", (__package__,), accepts=concrete(Metric), collect=True)


def fitting(classes: int, dense: bool, last: bool) -> list[Metric]:
    """Return the metrics that a run measures.

    Args:
        classes: how many there are.
        dense: the dataset has masks.
        last: after the last epoch.
    """
    kind = "masks" if dense else "labels"
    known = [metric() for metric in REGISTRY.entries()]
    return [each for each in known if kind in each.of and each.fits(classes) and last >= each.at_the_end]


def get(name: str) -> Metric:
    """Return the metric that a value of this name belongs to: `class_accuracy` of `class_accuracy_3`, `top1` of
    `ema_top1`.

    Raises:
        VitinitError: there is none.
    """
    known = REGISTRY.by_name()
    found = known.get(name) or known.get(re.sub(r"_\d+$", "", name)) or known.get(name.removeprefix(AVERAGED))
    if found is None:
        raise unknown_name("metric", name, known)
    return found()


def metric_label(name: str) -> str:
    """Return the label of a value in tables and figures."""
    metric = get(name)
    if name == AVERAGED + metric.name:
        return f"{metric.label} of averaged weights"
    number = name.removeprefix(metric.name).removeprefix("_")
    return f"{metric.label} {number}".strip()


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
    metric = get(name)
    kind = "masks" if dense else "labels"
    if metric.name != name or metric.at_the_end or not metric.percent or kind not in metric.of:
        raise VitinitError(f"metric {name!r} cannot be the main one: that is one number in percent after every epoch")
    if classes is not None and not metric.fits(classes):
        raise VitinitError(f"metric {name!r} says nothing of {classes} classes")
    return name
