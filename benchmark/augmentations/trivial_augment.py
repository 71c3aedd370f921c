"""TrivialAugment (arXiv 2103.10158) as torchvision has it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from vitinit.benchmark.augmentations.registry import Augmentation, register

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor


ENHANCING = ("Brightness", "Color", "Contrast", "Sharpness")
POINTWISE = {"Identity": "nothing", "Posterize": "posterize", "AutoContrast": "auto_contrast", "Equalize": "equalize"}


@register("trivial_augment")
class TrivialAugment(Augmentation):
    """One random operation at a random magnitude: the draws and pixels of torchvision's TrivialAugmentWide on PIL."""

    bins: Annotated[int, Field(strict=True, ge=2, le=1000)] = 31
    """Magnitudes from the least to the largest."""

    def draw(self, images: int, size: int, seed: int) -> np.ndarray:
        """Return the operation of each image and its numbers."""
        import numpy as np
        import torch
        from torchvision.transforms import TrivialAugmentWide

        generator = torch.Generator().manual_seed(seed)
        space = list(TrivialAugmentWide(self.bins)._augmentation_space(self.bins).items())
        drawn = []
        for _ in range(images):
            name, (magnitudes, signed) = space[int(torch.randint(len(space), (1,), generator=generator))]
            magnitude = 0.0
            if magnitudes.ndim:
                magnitude = float(magnitudes[torch.randint(len(magnitudes), (1,), generator=generator)])
            if signed and torch.randint(2, (1,), generator=generator):
                magnitude = -magnitude
            drawn.append([_operation(name, magnitude, size)])
        return np.array(drawn)

    def apply(self, images_BCHW: Tensor, drawn: np.ndarray, fill_C11: Tensor) -> Tensor:
        """Return the images, changed; what comes from outside is black."""
        from vitinit.benchmark.augmentations.operations.carry_out import carry_out

        return carry_out(images_BCHW, drawn, fill_C11.new_zeros(fill_C11.shape))


def _operation(name: str, magnitude: float, size: int) -> tuple[float, ...]:
    """Return torchvision's operation as `carry_out` takes it."""
    from vitinit.benchmark.augmentations.operations.carry_out import numbers

    if name in ENHANCING:
        return numbers(name.lower(), 1 + magnitude)
    if name == "Solarize":
        return numbers("solarize", math.ceil(magnitude))
    if name in POINTWISE:
        return numbers(POINTWISE[name], int(magnitude))
    if name == "Rotate":
        angle = -math.radians(magnitude % 360)  # rounded as by Pillow
        cos, sin = round(math.cos(angle), 15), round(math.sin(angle), 15)
        half = size / 2
        x, y = -half * cos - half * sin + half, half * sin - half * cos + half
        return numbers("affine, nearest", cos, sin, x, -sin, cos, y)
    shear = math.tan(math.radians(math.degrees(math.atan(magnitude))))  # rounded as by torchvision
    moved = float(int(magnitude))
    matrices = {
        "ShearX": (1.0, shear, 0.0, 0.0, 1.0, 0.0),
        "ShearY": (1.0, 0.0, 0.0, shear, 1.0, 0.0),
        "TranslateX": (1.0, 0.0, -moved, 0.0, 1.0, 0.0),
        "TranslateY": (1.0, 0.0, 0.0, 0.0, 1.0, -moved),
    }
    return numbers("affine, nearest", *matrices[name])
