"""RandAugment (arXiv 1909.13719) as timm has it."""

from __future__ import annotations

import numpy as np

from vitinit.benchmark.augmentations.registry import Augmentation, register
from vitinit.benchmark.spec import RandAugmentConfig


@register("rand_augment")
class RandAugment(Augmentation):
    """Random operations one after the other: timm's draws and timm's pixels, bit for bit."""

    config: RandAugmentConfig = "rand-m9-mstd0.5-inc1"
    """timm's configuration string."""

    def draw(self, images: int, size: int, seed: int) -> np.ndarray:
        """Return operations and their numbers, as `timm_draws.rand_augment`."""
        from vitinit.benchmark.augmentations.operations import timm_draws

        return timm_draws.rand_augment(self.config, size, images, seed)
