"""TrivialAugment (arXiv 2103.10158) as torchvision has it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from vitinit.benchmark.augmentations.registry import Augmentation, register

if TYPE_CHECKING:
    import numpy as np
    from PIL import Image
    from torch import Tensor


@register("trivial_augment")
class TrivialAugment(Augmentation):
    """One random operation at a random magnitude: the draws and pixels of torchvision's TrivialAugmentWide on PIL."""

    bins: Annotated[int, Field(strict=True, ge=2, le=1000)] = 31
    """Magnitudes from the least to the largest."""

    def draw(self, images: int, size: int, seed: int) -> np.ndarray:
        """Return the place of each image's operation in torchvision's list, and its magnitude."""
        import numpy as np
        import torch

        generator, space = torch.Generator().manual_seed(seed), list(self._space().values())
        drawn = []
        for _ in range(images):
            place = int(torch.randint(len(space), (1,), generator=generator))
            magnitudes, signed = space[place]
            magnitude = 0.0
            if magnitudes.ndim:
                magnitude = float(magnitudes[torch.randint(len(magnitudes), (1,), generator=generator)])
            if signed and torch.randint(2, (1,), generator=generator):
                magnitude = -magnitude
            drawn.append((place, magnitude))
        return np.array(drawn)

    def apply(self, images_BCHW: Tensor, drawn: np.ndarray, fill_C11: Tensor) -> Tensor:
        """Return the images, changed by torchvision one by one; what comes from outside is black."""
        from torchvision.transforms import InterpolationMode
        from torchvision.transforms.autoaugment import _apply_op

        from vitinit.benchmark.augmentations.operations.on_pil import on_pil

        names = list(self._space())

        def change(image: Image.Image, drawn_2: np.ndarray) -> Any:
            return _apply_op(image, names[int(drawn_2[0])], float(drawn_2[1]), InterpolationMode.NEAREST, None)

        return on_pil(images_BCHW, drawn, change)

    def _space(self) -> Any:
        from torchvision.transforms import TrivialAugmentWide

        return TrivialAugmentWide(self.bins)._augmentation_space(self.bins)
