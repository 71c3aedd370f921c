"""timm's ResMLP (arXiv 2105.03404), with timm's sizes and initial LayerScale."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from vitinit.benchmark.fields import Positive
from vitinit.benchmark.models.mixer import TokenMixing

if TYPE_CHECKING:
    from torch import nn


class ResMLP(TokenMixing):
    """Blocks with one matrix between patches, the same for every channel, and an affine map in place of every norm."""

    label: ClassVar[str] = "ResMLP"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "resmlp_micro": {"width": 48, "depth": 3, "layer_scale": 0.1},  # CPU-sized, ours
        "resmlp_12": {"width": 384, "depth": 12, "layer_scale": 1e-4},
        "resmlp_24": {"width": 384, "depth": 24, "layer_scale": 1e-5},
        "resmlp_36": {"width": 384, "depth": 36, "layer_scale": 1e-6},
    }

    arch: Literal["resmlp"] = "resmlp"
    layer_scale: Positive
    """Initial value of every entry of LayerScale; bases and methods do not change it."""

    @property
    def mixing(self) -> str:
        """Shape of the matrix that mixes patches."""
        return f"{self.tokens} x {self.tokens} patches"

    def build(self, classes: int) -> nn.Module:
        """Return timm's model."""
        from functools import partial

        from timm.models.mlp_mixer import Affine, MlpMixer, ResBlock

        block: Any = partial(ResBlock, init_values=self.layer_scale)  # timm's annotation does not allow a partial
        return MlpMixer(
            num_classes=classes,
            img_size=self.image_size,
            patch_size=self.patch_size,
            num_blocks=self.depth,
            embed_dim=self.width,
            mlp_ratio=self.mlp_ratio,
            block_layer=block,
            norm_layer=Affine,
            drop_rate=self.drop_rate,
            drop_path_rate=self.drop_path_rate,
            proj_drop_rate=self.proj_drop_rate,
        )
