"""timm's CaiT (arXiv 2103.17239); the sizes, and LayerScale's start in each, are timm's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from vitinit.benchmark.fields import Count, Positive
from vitinit.benchmark.models.transformer import Transformer, tokens_in_memory_order

if TYPE_CHECKING:
    from torch import nn


class CaiT(Transformer):
    """Blocks of talking heads among the patches, then blocks in which a class token looks at them.

    Both have LayerScale and the same `mlp_ratio`. As in timm, `drop_path_rate` is that of every block among the
    patches, the first as the last, and of none with the class token.
    """

    label: ClassVar[str] = "CaiT"
    kind: ClassVar[str] = "talking heads"  # their attention is in no fused kernel
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        # CPU-sized, ours; 0.1 is the paper's for a depth of at most 18
        "cait_micro": {"width": 48, "depth": 3, "heads": 4, "layer_scale": 0.1},
        "cait_xxs24": {"width": 192, "depth": 24, "heads": 4, "layer_scale": 1e-5},
        "cait_xxs36": {"width": 192, "depth": 36, "heads": 4, "layer_scale": 1e-5},
        "cait_xs24": {"width": 288, "depth": 24, "heads": 6, "layer_scale": 1e-5},
        "cait_s24": {"width": 384, "depth": 24, "heads": 8, "layer_scale": 1e-5},
        "cait_s36": {"width": 384, "depth": 36, "heads": 8, "layer_scale": 1e-6},
    }

    arch: Literal["cait"] = "cait"
    position: Literal["learned"] = "learned"
    pool: Literal["token"] = "token"
    class_layers: Count = 2
    """Blocks with the class token, which come last; `depth` does not count them."""
    layer_scale: Positive
    """Starting value of every entry of LayerScale; bases and methods leave it so."""

    @property
    def layer_tokens(self) -> list[int]:
        """Return the tokens that each block among the patches sees."""
        return [self.tokens] * self.depth

    @property
    def size(self) -> int:
        """Class blocks as well."""
        return super().size + self.class_layers * self.width * (4 * self.width + 2 * self.hidden)

    def forward_operations(self, classes: int) -> float:
        """Mixing heads before and after the softmax, and the class blocks, as well."""
        talking = self.depth * 2 * (self.tokens * self.heads) ** 2
        keys, token = 2 * self.width * (self.tokens + 1), 2 * self.width + 2 * self.hidden
        class_blocks = self.class_layers * self.width * (keys + token + 2 * (self.tokens + 1))
        return super().forward_operations(classes) + 2.0 * (talking + class_blocks)

    @property
    def mixing(self) -> str:
        """Its heads."""
        return f"{self.heads} talking heads"

    def build(self, classes: int) -> nn.Module:
        """Timm's model."""
        from timm.models.cait import Cait

        model = Cait(
            **self.timm_arguments(classes),
            init_values=self.layer_scale,
            depth_token_only=self.class_layers,
            mlp_ratio_token_only=self.mlp_ratio,
        )
        tokens_in_memory_order(model)
        return model
