"""timm's ConvMixer, never forked; the presets name width and depth as arXiv 2404.01139 does.

The paper has them with patch 2 at 32 pixels, the larger one with kernel_size 5 too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from vitinit.benchmark.fields import Rate, Size
from vitinit.benchmark.models.registry import PRESETS, ModelSpec

if TYPE_CHECKING:
    from torch import nn


class ConvMixer(ModelSpec):
    """Blocks of a depthwise convolution, which mixes tokens, and one of size 1, which mixes channels."""

    label = "ConvMixer"
    presets = PRESETS["convmixer"]
    dense = True

    arch: Literal["convmixer"] = "convmixer"
    drop_rate: Rate = 0.0
    kernel_size: Size
    """Side f of the f x f spatial filters. Zeros around the image keep its size; with an even f there is one more of
    them below and to the right than above and to the left."""

    @property
    def batch_norm(self) -> bool:
        """In every block."""
        return True

    @property
    def mixing(self) -> str:
        """Its filters."""
        return f"{self.kernel_size} x {self.kernel_size} filters"

    def build(self, classes: int) -> nn.Module:
        """Timm's model, in the order of memory in which a training step on a CPU takes two thirds of the time."""
        import torch
        from timm.models import convmixer

        model = convmixer.ConvMixer(
            dim=self.width,
            depth=self.depth,
            kernel_size=self.kernel_size,
            patch_size=self.patch_size,
            num_classes=classes,
            drop_rate=self.drop_rate,
        )
        return model.to(memory_format=torch.channels_last)
