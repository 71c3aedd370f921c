"""Random crop after zero padding."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vitinit.benchmark.augmentations.registry import Augmentation, register
from vitinit.benchmark.fields import WholeNumber

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor


@register("crop_padding")
class CropPadding(Augmentation):
    """Zero-pad by so many pixels, then crop at random back to the image size."""

    pixels: WholeNumber = 4

    def draw(self, images: int, size: int, seed: int) -> np.ndarray:
        """Return the upper and left edge of each crop."""
        import numpy as np

        return np.random.default_rng(seed).integers(2 * self.pixels + 1, size=(images, 2))

    def apply(self, images_BCHW: Tensor, drawn: np.ndarray, fill_C11: Tensor) -> Tensor:
        """Return the crops."""
        import torch

        from vitinit.benchmark.augmentations.operations.image_operations import crop

        edges_B2 = torch.from_numpy(drawn).to(images_BCHW.device, non_blocking=True)
        return crop(images_BCHW, self.pixels, edges_B2[:, 0], edges_B2[:, 1])
