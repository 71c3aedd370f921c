"""AugMix (arXiv 1912.02781) as timm has it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import numpy as np
from pydantic import Field

from vitinit.benchmark.augmentations.registry import Augmentation, register
from vitinit.benchmark.fields import Positive

if TYPE_CHECKING:
    from torch import Tensor

DEPTH = 3
"""Most operations in a chain."""


@register("augmix")
class AugMix(Augmentation):
    """Mix an image with chains of random operations on it: timm's draws and timm's pixels, bit for bit."""

    magnitude: Annotated[int, Field(strict=True, ge=1, le=10)] = 3
    width: Annotated[int, Field(strict=True, ge=1, le=10)] = 3
    """Chains that are mixed."""
    alpha: Positive = 1.0
    """Concentration of the Dirichlet and Beta distributions of the shares."""

    def draw(self, images: int, size: int, seed: int) -> np.ndarray:
        """Return what timm draws for so many images one after the other, B x (1 + chains) x (1 + DEPTH) x numbers.

        At [b, 0, 0, 0] is the share of the mixed image, at [b, 1 + c, 0, 0] that of chain c in it, at [b, 1 + c, 1:]
        its operations, as `apply_operations` takes them.
        """
        from timm.data.auto_augment import augment_and_mix_transform

        from vitinit.benchmark.augmentations.operations.image_operations import NOTHING, recording
        from vitinit.initializers.streams import seeded_python

        timm = recording(augment_and_mix_transform, f"augmix-m{self.magnitude}-w{self.width}-a{self.alpha}", size)
        with seeded_python(seed):
            drawn = np.zeros((images, 1 + self.width, 1 + DEPTH, len(NOTHING)))
            for chains in drawn:
                chains[1:, 0, 0] = np.float32(np.random.dirichlet([self.alpha] * self.width))  # noqa: NPY002
                chains[0, 0, 0] = np.float32(np.random.beta(self.alpha, self.alpha))  # noqa: NPY002
                for chain in chains[1:]:
                    depth = np.random.randint(1, 1 + DEPTH)  # noqa: NPY002
                    chain[1 : 1 + depth] = [op(NOTHING) for op in np.random.choice(timm.ops, depth)]  # noqa: NPY002
        return drawn

    def apply(self, images_BCHW: Tensor, drawn: np.ndarray, fill_C11: Tensor) -> Tensor:
        """Return the mixed images."""
        import torch

        from vitinit.benchmark.augmentations.operations.image_operations import apply_operations, blend, sent

        operations_BWL3 = drawn[:, 1:, 1:]
        shares_BW1 = sent(torch.from_numpy(drawn[:, :, 0, 0]), images_BCHW.device).float()
        mixed_BCHW = torch.zeros(images_BCHW.shape, device=images_BCHW.device)
        for chain in range(self.width):
            changed = apply_operations(images_BCHW, operations_BWL3[:, chain], fill_C11)
            mixed_BCHW += shares_BW1[:, 1 + chain, None, None, None] * changed.float()
        return blend(images_BCHW, mixed_BCHW.clamp_(0, 255).to(torch.uint8), shares_BW1[:, 0])
