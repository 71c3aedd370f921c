"""timm's ConViT (arXiv 2103.10697) with fused attention; the presets are those of its Table 1."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import model_validator

from vitinit.benchmark.fields import Size
from vitinit.benchmark.models.registry import PRESETS
from vitinit.benchmark.models.vit import Transformer, tokens_in_memory_order

if TYPE_CHECKING:
    from torch import nn


class ConViT(Transformer):
    """A ViT whose first blocks have gated positional self-attention (GPSA).

    GPSA's relative positions are offsets in tokens: the same weights on a larger or smaller set of them, so that a head
    that looked one token to the right does so at every image size.
    """

    label = "ConViT"
    presets = PRESETS["convit"]
    dense = True
    usual_qkv_bias = False

    arch: Literal["convit"] = "convit"
    gpsa_layers: Size
    """Number of blocks with GPSA, counted from the input."""

    @model_validator(mode="after")
    def _has_a_block_for_the_class_token(self) -> ConViT:
        # timm joins the class token to the tokens before the first block after the GPSA ones: there must be one
        if self.gpsa_layers >= self.depth:
            raise ValueError(f"convit needs gpsa_layers from 1 to one less than its depth {self.depth}")
        return self

    @property
    def reads_patches(self) -> bool:
        """False: it answers by a class token."""
        return False

    @property
    def gated_layers(self) -> int:
        """The GPSA layers."""
        return self.gpsa_layers

    def build(self, classes: int) -> nn.Module:
        """Timm's model, whose attention takes less time and memory."""
        from timm.models.convit import ConVit

        from vitinit.benchmark.models.layers.gated_attention import fuse_attention

        model = ConVit(
            **self.timm_arguments(classes)
            | {"embed_dim": self.width // self.heads},  # timm multiplies it by the number of heads
            local_up_to_layer=self.gpsa_layers,
        )
        tokens_in_memory_order(model)
        return fuse_attention(model)
