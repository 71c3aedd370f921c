"""Accuracy of a trained ConViT without the content, or the position, term of its first layers."""

from __future__ import annotations

import torch
from timm.models.convit import ConVit
from torch import Tensor, nn

from vitinit.benchmark.models.layers.gated_attention import leaving_out
from vitinit.benchmark.records.record import Masked
from vitinit.initializers.attention import evaluated
from vitinit.runners.loaders.base import Loader
from vitinit.runners.probes.take import chosen
from vitinit.runners.training.train import autocast

LEAST_IMAGES, LEAST_SHARE = 1000, 100
"""Held-out images measured on: a hundredth of the training images seen in the run, at least a thousand if there are."""


def masked(
    model: nn.Module, loader: Loader, labels: Tensor, images_seen: int, micro_batch: int | None = None
) -> list[Masked]:
    """Held-out accuracy with one term left out in the first 3, 5 and 10 tenths of the GPSA layers; nothing is trained.

    As arXiv 2103.10697, Table 6, which leaves them out in 3, 5 and 10 layers of 10; it does not say which. Halves are
    rounded to even, so of five layers these are 2, 2 and 5: twice the same, recorded once.

    Args:
        model: trained; one that is no ConViT has no result, and neither has one that predicts pixels.
        loader: of the run.
        labels: of all images that accuracy is measured on.
        images_seen: training images times epochs.
        micro_batch: images at most that go through the model at once.
    """
    if not isinstance(model, ConVit) or labels.ndim > 1:
        return []
    numbers = chosen(len(labels), max(LEAST_IMAGES, images_seen // LEAST_SHARE))
    at_once = min(loader.evaluation_batch, micro_batch or loader.evaluation_batch)

    @torch.inference_mode()
    def top1() -> float:
        with evaluated(model), autocast(loader.recipe, loader.device):
            correct = sum(
                int((model(loader.plain(some, "held_out")).argmax(-1).cpu() == labels[some].cpu()).sum())
                for some in numbers.split(at_once)
            )
        return 100 * correct / len(numbers)

    depth, whole, found = model.local_up_to_layer, top1(), []
    for layers in sorted({max(1, round(share * depth)) for share in (0.3, 0.5, 1.0)}):
        for term in ("content", "position"):
            with leaving_out(model, term, layers):
                found.append(Masked(term=term, layers=layers, images=len(numbers), top1=top1(), top1_whole=whole))
    return found
