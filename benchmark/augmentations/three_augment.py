"""3-Augment of DeiT III (arXiv 2204.07118)."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import numpy as np

from vitinit.benchmark.augmentations.registry import OnPil, register

if TYPE_CHECKING:
    from PIL.Image import Image

KINDS = ("grey", "solarize", "blur")
RADII = (0.1, 2.0)
"""Standard deviation of the blur, in pixels, from and to."""


@register("three_augment")
class ThreeAugment(OnPil):
    """Grey, solarised or blurred, one of the three for each image, with Pillow's pixels. color_jitter: 0.3 follows."""

    def draw(self, images: int, size: int, seed: int) -> np.ndarray:
        """Return the place of each image's operation in `KINDS`, and a standard deviation."""
        draws = random.Random(seed)
        return np.array([(KINDS.index(draws.choice(KINDS)), draws.uniform(*RADII)) for _ in range(images)])

    def change(self, image: Image, drawn: np.ndarray) -> Image:
        """Return the image changed by Pillow."""
        from PIL import ImageFilter, ImageOps

        operation, sigma = KINDS[int(drawn[0])], float(drawn[1])
        if operation == "grey":
            return image.convert("L").convert("RGB")
        return ImageOps.solarize(image) if operation == "solarize" else image.filter(ImageFilter.GaussianBlur(sigma))
