"""timm's VisionTransformer, never forked; the presets are those of arXiv 2404.01139."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from vitinit.benchmark.fields import Positive
from vitinit.benchmark.models.transformer import Transformer, sincos, tokens_in_memory_order

if TYPE_CHECKING:
    from torch import nn


class ViT(Transformer):
    """A Vision Transformer.

    A sin-cos position embedding is a buffer (not a parameter, not trained); the class token, where there is one, has
    then no position. With average pooling the final norm comes after the pool. With LayerScale (arXiv 2103.17239) what
    attention and MLP add is multiplied, feature by feature, by trained weights that start at `layer_scale`; bases and
    methods leave them there.
    """

    label: ClassVar[str] = "ViT"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "vit_micro": {"width": 48, "depth": 3, "heads": 4},  # CPU-sized, ours
        "vit_tiny": {"width": 192, "depth": 12, "heads": 3},
        "vit_small": {"width": 384, "depth": 12, "heads": 6},
        "vit_base": {"width": 768, "depth": 12, "heads": 12},
    }
    dense: ClassVar[bool] = True
    later: ClassVar[Mapping[str, Any]] = {
        "kernel_size": None,
        "layer_scale": None,
        "proj_drop_rate": 0.0,
        "attn_drop_rate": 0.0,
    }
    also_recorded: ClassVar[Mapping[str, Any]] = {"gpsa_layers": None, "kernel_size": None}

    arch: Literal["vit"] = "vit"
    layer_scale: Positive | None = None
    """The paper's: 0.1 up to 18 blocks, 1e-5 at 24, 1e-6 above. None: there is no LayerScale."""

    def describe(self) -> str:
        """The model in one phrase, LayerScale where there is one."""
        phrase = super().describe()
        return f"{phrase}, LayerScale {self.layer_scale:g}" if self.layer_scale else phrase

    def build(self, classes: int) -> nn.Module:
        """Timm's model, with sin-cos positions if they are asked for."""
        from timm.models.vision_transformer import VisionTransformer

        model = VisionTransformer(
            **self.timm_arguments(classes),
            global_pool=self.pool,
            class_token=self.pool == "token",
            no_embed_class=self.position == "sincos",
            init_values=self.layer_scale,
            weight_init="skip",
        )
        if self.position == "sincos":
            del model.pos_embed
            model.register_buffer("pos_embed", sincos(self.grid, self.width))
        tokens_in_memory_order(model)
        return model
