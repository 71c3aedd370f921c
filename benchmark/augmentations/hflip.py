"""Horizontal flip."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vitinit.benchmark.augmentations.registry import Augmentation, register
from vitinit.benchmark.fields import Fraction

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor


@register("hflip")
class HorizontalFlip(Augmentation):
    """Mirror images with probability `p`."""

    p: Fraction = 0.5

    def draw(self, images: int, size: int, seed: int) -> np.ndarray:
        """Return which images are flipped."""
        import numpy as np

        return np.random.default_rng(seed).random(images) < self.p

    def apply(self, images_BCHW: Tensor, drawn: np.ndarray, fill_C11: Tensor) -> Tensor:
        """Return the images, some of them mirrored."""
        import torch

        flipped_B = torch.from_numpy(drawn).to(images_BCHW.device, non_blocking=True)
        return torch.where(flipped_B[:, None, None, None], images_BCHW.flip(-1), images_BCHW)
