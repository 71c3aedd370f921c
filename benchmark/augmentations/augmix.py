"""AugMix (arXiv 1912.02781) as timm has it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import numpy as np
from pydantic import Field

from vitinit.benchmark.augmentations.registry import Augmentation, register
from vitinit.benchmark.fields import Positive

if TYPE_CHECKING:
    from torch import Tensor


@register("augmix")
class AugMix(Augmentation):
    """Mix an image with chains of random operations on it: timm's draws and timm's pixels, bit for bit."""

    magnitude: Annotated[int, Field(strict=True, ge=1, le=10)] = 3
    width: Annotated[int, Field(strict=True, ge=1, le=10)] = 3
    """Chains that are mixed."""
    alpha: Positive = 1.0
    """Concentration of the Dirichlet and Beta distributions of the shares."""

    def draw(self, images: int, size: int, seed: int) -> np.ndarray:
        """Return shares, operations and their numbers, as `timm_draws.augmix`."""
        from vitinit.benchmark.augmentations.operations import timm_draws

        return timm_draws.augmix(f"augmix-m{self.magnitude}-w{self.width}-a{self.alpha}", size, images, seed)

    def apply(self, images_BCHW: Tensor, drawn: np.ndarray, fill_C11: Tensor) -> Tensor:
        """Return the mixed images."""
        import torch

        from vitinit.benchmark.augmentations.operations.carry_out import carry_out
        from vitinit.benchmark.augmentations.operations.image_operations import blend

        operations_BWL3 = drawn[:, 1:, 1:]
        shares_BW1 = torch.from_numpy(drawn[:, :, 0, 0]).to(images_BCHW.device, non_blocking=True).float()
        mixed_BCHW = torch.zeros(images_BCHW.shape, device=images_BCHW.device)
        for chain in range(self.width):
            changed = carry_out(images_BCHW, operations_BWL3[:, chain], fill_C11)
            mixed_BCHW += shares_BW1[:, 1 + chain, None, None, None] * changed.float()
        return blend(images_BCHW, mixed_BCHW.clamp_(0, 255).to(torch.uint8), shares_BW1[:, 0])
