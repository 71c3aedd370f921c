"""What is minimised, and what is measured on held-out images: of labels and of masks."""

from __future__ import annotations

import base64

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from vitinit.benchmark.image_files.arrays import IGNORED
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
    return _of_pixels(logits, targets, label_smoothing) / targets.numel()


def _of_pixels(logits_BSSK: Tensor, masks_BSS: Tensor, label_smoothing: float = 0.0) -> Tensor:
    """Summed. Pixels are in a row, as labels are: on a GPU, a sum over images is not the same twice."""
    return F.cross_entropy(
        logits_BSSK.flatten(0, 2),
        masks_BSS.flatten().long(),
        ignore_index=IGNORED,
        reduction="sum",
        label_smoothing=label_smoothing,
    )


class Top1:
    """Cross-entropy and top-1 of held-out images, batch by batch."""

    def __init__(self, device: torch.device) -> None:
        self.totals = torch.zeros(3, dtype=torch.float64, device=device)
        """Loss, correct ones, and how many."""
        self.correct: list[Tensor] = []
        """Which images are classified correctly, batch by batch."""

    def add(self, logits_BK: Tensor, labels_B: Tensor) -> None:
        """Count a batch."""
        self.totals[0] += F.cross_entropy(logits_BK.float(), labels_B, reduction="sum")
        self.correct.append(logits_BK.argmax(-1) == labels_B)
        self.totals[1] += self.correct[-1].sum()
        self.totals[2] += len(labels_B)

    def over(self, world: World) -> tuple[float, float, str]:
        """Mean loss, top-1 in percent and the bitmap of `RunRecord.correct`, over all images of all processes."""
        loss, correct, count = world.sum(self.totals).tolist()
        here = torch.cat(self.correct) if self.correct else torch.zeros(0, dtype=torch.bool)
        images = np.concatenate(world.gather(here.cpu().numpy()))  # parts of processes are in order of rank
        return loss / count, 100 * correct / count, base64.b64encode(np.packbits(images).tobytes()).decode()


class MeanIoU:
    """Cross-entropy and mean intersection over union of held-out masks, batch by batch; all pixels weigh the same.

    Args:
        device: of the batches.
        classes: how many there are.
    """

    def __init__(self, device: torch.device, classes: int) -> None:
        self.loss = torch.zeros((), dtype=torch.float64, device=device)
        self.confusion_KK = torch.zeros((classes, classes), dtype=torch.float64, device=device)
        """Pixels by class (rows) and by predicted class; whole numbers."""

    def add(self, logits_BSSK: Tensor, masks_BSS: Tensor) -> None:
        """Count a batch."""
        classes, counted = len(self.confusion_KK), masks_BSS != IGNORED
        self.loss += _of_pixels(logits_BSSK.float(), masks_BSS)
        pairs = masks_BSS[counted].long() * classes + logits_BSSK.argmax(-1)[counted]
        self.confusion_KK += torch.bincount(pairs, minlength=classes**2).view(classes, classes)

    def over(self, world: World) -> tuple[float, float, None]:
        """Mean loss of a pixel, mean IoU in percent, and no bitmap of images, over all images of all processes."""
        *counts, loss = world.sum(torch.cat([self.confusion_KK.flatten(), self.loss[None]])).tolist()
        confusion_KK = torch.tensor(counts, dtype=torch.float64).view_as(self.confusion_KK)
        return loss / sum(counts), mean_iou(confusion_KK), None


def mean_iou(confusion_KK: Tensor) -> float:
    """Mean over classes of intersection over union, in percent; a class that is neither there nor predicted has none.

    Args:
        confusion_KK: pixels of the whole held-out set by class and by predicted class, float64.
    """
    both_K = confusion_KK.diagonal()
    either_K = confusion_KK.sum(0) + confusion_KK.sum(1) - both_K
    return 100 * float((both_K[either_K > 0] / either_K[either_K > 0]).mean())
