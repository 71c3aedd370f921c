"""Taking all probes of a model."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import Tensor, nn

from vitinit.benchmark.records.record import Probe
from vitinit.initializers.diagnostics import rounded, starts
from vitinit.initializers.errors import cause
from vitinit.initializers.streams import stream
from vitinit.runners.probes.quantities.effective_receptive_field import RECEPTIVE_FIELD_IMAGES
from vitinit.runners.probes.registry import Seen, probes

IMAGES = 32
"""Number of test images for probes: under 5 % of the time of an epoch of 1,400 images, the shortest there is."""


def chosen(available: int, count: int) -> Tensor:
    """Return numbers of held-out images, the same in every run on them, from all over a split sorted by class."""
    return torch.randperm(available, generator=stream(0, "maps"))[:count]


def refusal(model: nn.Module, images_BCHW: Tensor | None) -> str:
    """Return why the attention of somebody's model cannot be measured, or its weights alone; empty where it can.

    Args:
        model: with attention, on any device; it is left as it was.
        images_BCHW: a few, on its device; None for the weights alone.
    """
    try:
        starts(model, images_BCHW)
    except Exception as error:  # modules with other names or shapes than probes go by
        return f"{type(model).__name__}: {cause(error)}"
    return ""


def take(
    model: nn.Module, images_BCHW: Tensor, targets_LHNN: Tensor | None, epoch: int
) -> tuple[Probe | None, dict[str, list[str]]]:
    """Measure the attention of a model, which is left as it was; no random number is drawn.

    Args:
        model: with attention.
        images_BCHW: on its device.
        targets_LHNN: what its method aimed at, of the layers that have a target; None where it has none.
        epoch: that has ended.

    Returns:
        What was measured, if anything, and the names of the probes that could not measure, by the reason.
    """
    began = time.perf_counter()
    seen = Seen(model, images_BCHW, targets_LHNN)
    found: dict[str, Any] = {}
    more: dict[str, Any] = {}
    missing: dict[str, list[str]] = {}
    for name, measure in probes().items():
        try:
            value = measure(seen)
        except Exception as error:  # as above: this one is left out, and no other
            missing.setdefault(f"{type(model).__name__}: {cause(error)}", []).append(name)
            continue
        if value is not None:
            (found if name in Probe.model_fields else more)[name] = rounded(value)
    if not found and not more:
        return None, missing
    probe = Probe(
        epoch=epoch,
        images=len(images_BCHW),
        receptive_field_images=min(RECEPTIVE_FIELD_IMAGES, len(images_BCHW)),
        **found,
        more=more,
        seconds=time.perf_counter() - began,
    )
    return probe, missing
