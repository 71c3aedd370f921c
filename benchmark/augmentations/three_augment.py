"""3-Augment of DeiT III (arXiv 2204.07118)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vitinit.benchmark.augmentations.registry import Augmentation, register

if TYPE_CHECKING:
    import numpy as np
    from PIL import Image
    from torch import Tensor

KINDS = ("grey", "solarize", "blur")
RADII = (0.1, 2.0)
"""Standard deviation of the blur, in pixels, from and to."""


@register("three_augment")
class ThreeAugment(Augmentation):
    """Grey, solarised or blurred, one of the three for each image, with Pillow's pixels. color_jitter: 0.3 follows."""

    def draw(self, images: int, size: int, seed: int) -> np.ndarray:
        """Return the place of each image's operation in `KINDS`, and a standard deviation."""
        import random

        import numpy as np

        draws = random.Random(seed)
        return np.array([(KINDS.index(draws.choice(KINDS)), draws.uniform(*RADII)) for _ in range(images)])

    def apply(self, images_BCHW: Tensor, drawn: np.ndarray, fill_C11: Tensor) -> Tensor:
        """Return the images, changed by Pillow one by one."""
        from PIL import ImageFilter, ImageOps

        from vitinit.benchmark.augmentations.operations.on_pil import on_pil

        def change(image: Image.Image, drawn_2: np.ndarray) -> Image.Image:
            kind, sigma = KINDS[int(drawn_2[0])], float(drawn_2[1])
            if kind == "grey":
                return image.convert("L").convert("RGB")
            return ImageOps.solarize(image) if kind == "solarize" else image.filter(ImageFilter.GaussianBlur(sigma))

        return on_pil(images_BCHW, drawn, change)
