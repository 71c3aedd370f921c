"""TrivialAugment (arXiv 2103.10158) as torchvision has it."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from pydantic import Field

from vitinit.benchmark.augmentations.registry import OnPil, register

if TYPE_CHECKING:
    from PIL.Image import Image


@register("trivial_augment")
class TrivialAugment(OnPil):
    """One random operation at a random magnitude: the draws and pixels of torchvision's TrivialAugmentWide on PIL."""

    bins: Annotated[int, Field(strict=True, ge=2, le=1000)] = 31
    """Magnitudes from the least to the largest."""

    def draw(self, images: int, size: int, seed: int) -> np.ndarray:
        """Return the place of each image's operation in torchvision's list, and its magnitude."""
        import torch

        generator, operations = torch.Generator().manual_seed(seed), list(space(self.bins).values())

        def below(count: int) -> int:
            return int(torch.randint(count, (1,), generator=generator))

        drawn = []
        for _ in range(images):
            place = below(len(operations))
            magnitudes, signed = operations[place]
            magnitude = float(magnitudes[below(len(magnitudes))]) if magnitudes.ndim else 0.0
            drawn.append((place, -magnitude if signed and below(2) else magnitude))
        return np.array(drawn)

    def change(self, image: Image, drawn: np.ndarray) -> Any:
        """Return the image changed by torchvision."""
        from torchvision.transforms import InterpolationMode
        from torchvision.transforms.autoaugment import _apply_op

        operation = list(space(self.bins))[int(drawn[0])]
        return _apply_op(image, operation, float(drawn[1]), InterpolationMode.NEAREST, None)


@cache
def space(bins: int) -> Any:
    """Return torchvision's operations by name, each with its magnitudes and whether these have a sign."""
    from torchvision.transforms import TrivialAugmentWide

    return TrivialAugmentWide(bins)._augmentation_space(bins)
