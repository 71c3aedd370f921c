"""Method `convit_gpsa`: gated positional self-attention that starts as a convolution."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from pydantic import PositiveFloat
from torch import nn

from initializers.attention import attention_layers, token_grid
from initializers.errors import VitinitError
from initializers.registry import Aim, Initializer, Progress, register
from initializers.whole_model import draw_trunc_normal_


@register
class ConvitGpsa(Initializer):
    """Local initialisation of GPSA layers (d'Ascoli et al., ICML 2021, arXiv 2103.10697, equations 5 to 7).

    In every GPSA layer W_v = I, gates 1 (sigmoid 0.731), and head h1 + k h2 of k x k heads attends by position to the
    key at (row, column) offset (h1 - c, h2 - c): `pos_proj` is alpha [2(h2-c), 2(h1-c), -1] on the features
    [dx, dy, dx^2 + dy^2], its bias 0. c = (k-1)/2, so that with an even k the offsets lie between tokens. The class
    token is trunc-normal, std 0.02, as in the released model. Self-attention layers keep the base.
    """

    name: ClassVar[str] = "convit_gpsa"
    touches: ClassVar[tuple[str, ...]] = (
        "*.v.weight",
        "*.pos_proj.weight",
        "*.pos_proj.bias",
        "*.gating_param",
        "cls_token",
    )

    locality_strength: PositiveFloat = 1.0
    """alpha: how sharply the positional attention peaks."""

    def check(self, model: nn.Module) -> None:
        """Refuse models without GPSA layers and head counts that are no square."""
        gated: list[Any] = [module for module in model.modules() if hasattr(module, "gating_param")]
        if not gated:
            raise VitinitError(
                f"method 'convit_gpsa' initialises gated positional self-attention, and {type(model).__name__} has "
                "none; choose a model of arch 'convit'"
            )
        heads = gated[0].num_heads
        if math.isqrt(heads) ** 2 != heads:
            raise VitinitError(f"method 'convit_gpsa' needs a square number of heads (4, 9, 16, ...), not {heads}")

    @torch.no_grad()
    def apply(self, model: nn.Module, generator: torch.Generator, progress: Progress) -> Aim | None:
        """Set the GPSA layers. Returns the targets where each head's offset is a token (odd k), else None."""
        offsets: list[tuple[float, float]] = []
        for layer in attention_layers(model):
            if not layer.gated:
                continue
            side = math.isqrt(layer.heads)
            centre = (side - 1) / 2
            offsets = [(h % side - centre, h // side - centre) for h in range(layer.heads)]
            weight_H3 = torch.tensor([[2 * dx, 2 * dy, -1.0] for dy, dx in offsets])
            layer.module.pos_proj.weight.copy_(self.locality_strength * weight_H3)
            layer.module.pos_proj.bias.zero_()
            layer.value_DD.copy_(torch.eye(layer.value_DD.shape[0]))
            layer.module.gating_param.fill_(1.0)
        draw_trunc_normal_(model.get_parameter("cls_token"), 0.02, generator)
        if math.isqrt(len(offsets)) % 2 == 0:
            return None
        from initializers.impulse.targets import impulse_targets

        targets_HNN = impulse_targets(token_grid(model), [(int(dy), int(dx)) for dy, dx in offsets])
        gated = sum(layer.gated for layer in attention_layers(model))
        return Aim(targets_HNN.expand(gated, *targets_HNN.shape))
