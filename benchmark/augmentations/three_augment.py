"""3-Augment of DeiT III (arXiv 2204.07118)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vitinit.benchmark.augmentations.registry import Augmentation, register

if TYPE_CHECKING:
    import numpy as np

RADII = (0.1, 2.0)
"""Standard deviation of the blur, in pixels, from and to."""


@register("three_augment")
class ThreeAugment(Augmentation):
    """Grey, solarised or blurred, one of the three for each image, with Pillow's pixels. color_jitter: 0.3 follows."""

    def draw(self, images: int, size: int, seed: int) -> np.ndarray:
        """Return the operation of each image and its number."""
        import random

        import numpy as np

        from vitinit.benchmark.augmentations.operations.carry_out import numbers
        from vitinit.benchmark.augmentations.operations.image_operations import box_weights

        draws, drawn = random.Random(seed), []
        for _ in range(images):
            kind, sigma = draws.choice(("grey", "solarize", "blur")), draws.uniform(*RADII)
            values = {"grey": (), "solarize": (128,), "blur": box_weights(sigma)}[kind]
            drawn.append([numbers(kind, *values)])
        return np.array(drawn)
