"""Training loss, and scores on held-out images: of labels and of masks."""

from __future__ import annotations

import base64
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from vitinit.benchmark.image_files.arrays import IGNORED
from vitinit.benchmark.metrics.registry import fitting
from vitinit.runners.training.distributed import World


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


class Scored(NamedTuple):
    """Scores on all held-out images."""

    metrics: dict[str, float]
    """By name, the loss among them."""
    correct: str | None = None
    """Images that are classified correctly, as `RunRecord.correct` has them; None of masks."""


class Scores:
    """All metrics of held-out images, batch by batch.

    Args:
        device: of the batches.
        classes: how many there are.
        dense: the targets are masks, of which each pixel counts as an image.
        last: after the last epoch, where some are measured that are not before.
    """

    def __init__(self, device: torch.device, classes: int, dense: bool, last: bool = True) -> None:
        self.dense, self.metrics = dense, fitting(classes, dense, last)
        nothing = torch.zeros(0, classes, device=device), torch.zeros(0, dtype=torch.long, device=device)
        self.sums = [each.sums(*nothing) for each in self.metrics]
        self.correct = [torch.zeros(0, dtype=torch.bool, device=device)]

    def add(self, logits: Tensor, targets: Tensor) -> None:
        """Count a batch."""
        if self.dense:
            logits, targets = logits.flatten(0, -2), targets.flatten().long()
            targets = targets.masked_fill(targets == IGNORED, -100)
        else:
            self.correct.append(logits.argmax(-1) == targets)
        for sums, metric in zip(self.sums, self.metrics, strict=True):
            sums += metric.sums(logits, targets)

    def over(self, world: World) -> Scored:
        """Return the metrics of all images of all processes."""
        all_sums = world.sum(torch.cat(self.sums)).cpu().split([len(sums) for sums in self.sums])
        values: dict[str, float] = {}
        for sums, metric in zip(all_sums, self.metrics, strict=True):
            values |= metric.values(sums)
        if self.dense:
            return Scored(values)
        images = np.concatenate(world.gather(torch.cat(self.correct).cpu().numpy()))  # parts are in order of rank
        return Scored(values, base64.b64encode(np.packbits(images).tobytes()).decode())
