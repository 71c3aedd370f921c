"""timm's MLP-Mixer (arXiv 2105.01601); the sizes are timm's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import model_validator

from vitinit.benchmark.fields import Positive, Rate
from vitinit.benchmark.models.family import ModelSpec

if TYPE_CHECKING:
    from torch import nn


class TokenMixing(ModelSpec):
    """Blocks in which weights between patches mix tokens, and an MLP channels; no family by itself.

    There is no attention, and no position embedding. As in timm, every block has the same `drop_path_rate`.
    """

    kind: ClassVar[str] = "products of patches"
    dense: ClassVar[bool] = True
    later: ClassVar[Mapping[str, Any]] = {"proj_drop_rate": 0.0}

    mlp_ratio: Positive = 4.0
    """Hidden features of the MLP over channels, in widths."""
    drop_rate: Rate = 0.0
    """Dropout before the classifier."""
    drop_path_rate: Rate = 0.0
    proj_drop_rate: Rate = 0.0
    """Dropout behind every Linear of an MLP."""

    @model_validator(mode="after")
    def _has_hidden_features(self) -> TokenMixing:
        if self.hidden < 1:
            raise ValueError(f"mlp_ratio {self.mlp_ratio:g} of width {self.width} leaves the MLP no feature")
        return self

    @property
    def hidden(self) -> int:
        """Features between the two layers of an MLP over channels."""
        return int(self.width * self.mlp_ratio)

    @property
    def between_patches(self) -> int:
        """Weights of one block that mix tokens."""
        return self.tokens**2

    @property
    def size(self) -> int:
        """Count the parameters of patch embedding and of token and channel mixing."""
        blocks = self.depth * (self.between_patches + 2 * self.width * self.hidden)
        return 3 * self.patch_size**2 * self.width + blocks

    def forward_operations(self, classes: int) -> float:
        """Count the operations of the same and of the head."""
        block = self.between_patches + 2 * self.tokens * self.hidden
        return 2.0 * self.width * (self.tokens * 3 * self.patch_size**2 + self.depth * block + classes)


class Mixer(TokenMixing):
    """An MLP-Mixer: what mixes tokens is an MLP over patches, the same for every channel."""

    label: ClassVar[str] = "MLP-Mixer"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "mixer_micro": {"width": 48, "depth": 3},  # CPU-sized, ours
        "mixer_small": {"width": 512, "depth": 8},
        "mixer_base": {"width": 768, "depth": 12},
        "mixer_large": {"width": 1024, "depth": 24},
    }

    arch: Literal["mixer"] = "mixer"
    token_ratio: Positive = 0.5
    """Hidden features of the MLP over patches, in widths."""

    @model_validator(mode="after")
    def _has_features_for_patches(self) -> Mixer:
        if self.token_hidden < 1:
            raise ValueError(f"token_ratio {self.token_ratio:g} of width {self.width} leaves the MLP no feature")
        return self

    @property
    def token_hidden(self) -> int:
        """Features between the two layers of an MLP over patches."""
        return int(self.width * self.token_ratio)

    @property
    def between_patches(self) -> int:
        """Those of an MLP."""
        return 2 * self.tokens * self.token_hidden

    @property
    def mixing(self) -> str:
        """Its hidden features."""
        return f"{self.token_hidden} hidden features over patches"

    def build(self, classes: int) -> nn.Module:
        """Timm's model."""
        from timm.models.mlp_mixer import MlpMixer

        return MlpMixer(
            num_classes=classes,
            img_size=self.image_size,
            patch_size=self.patch_size,
            num_blocks=self.depth,
            embed_dim=self.width,
            mlp_ratio=(self.token_ratio, self.mlp_ratio),
            drop_rate=self.drop_rate,
            drop_path_rate=self.drop_path_rate,
            proj_drop_rate=self.proj_drop_rate,
        )
