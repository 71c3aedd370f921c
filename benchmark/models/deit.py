"""timm's DeiT with a distillation token (arXiv 2012.12877); the sizes are timm's. A DeiT without one is a ViT."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from vitinit.benchmark.models.transformer import Transformer, tokens_in_memory_order

if TYPE_CHECKING:
    from torch import nn


class DeiT(Transformer):
    """A ViT with a class token and a distillation token, each with a position and a classifier of its own.

    Here is no teacher. As in timm, outside distilled training (`set_distilled_training`), the model's output is the
    mean of the logits of both classifiers, in training and in evaluation: one loss, that of their mean, reaches both.

    A plain DeiT is `arch: vit` with `position: learned, pool: token`.
    """

    label: ClassVar[str] = "distilled DeiT"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "deit_micro": {"width": 48, "depth": 3, "heads": 4},  # CPU-sized, ours
        "deit_tiny": {"width": 192, "depth": 12, "heads": 3},
        "deit_small": {"width": 384, "depth": 12, "heads": 6},
        "deit_base": {"width": 768, "depth": 12, "heads": 12},
    }

    arch: Literal["deit"] = "deit"
    position: Literal["learned"] = "learned"
    pool: Literal["token"] = "token"

    @property
    def layer_tokens(self) -> list[int]:
        """With both of them."""
        return [self.tokens + 2] * self.depth

    def forward_operations(self, classes: int) -> float:
        """There are two heads."""
        return super().forward_operations(2 * classes)

    def build(self, classes: int) -> nn.Module:
        """Timm's model."""
        from timm.models.deit import VisionTransformerDistilled

        model = VisionTransformerDistilled(
            **self.timm_arguments(classes),
            weight_init="skip",
        )
        tokens_in_memory_order(model)
        return model
