"""Method `convit_gpsa`: gated positional self-attention that starts as a convolution."""

import math
from typing import Any

import torch
from pydantic import PositiveFloat, model_validator
from torch import Generator, nn

from vitinit.initializers.attention import attention_layers, family, token_grid
from vitinit.initializers.errors import VitinitError
from vitinit.initializers.registry import Aim, Initializer, Job, register
from vitinit.initializers.targets import target_matrices, target_positions
from vitinit.initializers.whole_model import draw_trunc_normal_


@register
class ConvitGpsa(Initializer):
    """Local initialisation of GPSA layers (d'Ascoli et al., ICML 2021, arXiv 2103.10697, equations 5 to 7).

    In every GPSA layer W_v = I, gates 1 (sigmoid 0.731), and head h1 + k h2 of k x k heads attends by position to the
    key at (row, column) offset (h1 - c, h2 - c): `pos_proj` is alpha [2(h2-c), 2(h1-c), -1] on the features
    [dx, dy, dx^2 + dy^2], its bias 0. c = (k-1)/2, so that with an even k the offsets lie between tokens. The class
    token is trunc-normal, std 0.02, as in the released model. Self-attention layers keep the base.

    `train_gating`, `conv_init` and `train_gpsa` are the switches of the paper's Table 3, where a gate that is not
    trained stays at `gate` 0. At one seed all of them start from the same base and the same class token.
    """

    name = "convit_gpsa"
    touches = ("*.v.weight", "*.pos_proj.weight", "*.pos_proj.bias", "*.gating_param", "*cls_token")

    locality_strength: PositiveFloat = 1.0
    """alpha: how sharply the positional attention peaks."""
    train_gating: bool = True
    """False: the gates stay at `gate`."""
    conv_init: bool = True
    """False: of the GPSA layers only the gates are set, W_v and `pos_proj` keep the base."""
    train_gpsa: bool = True
    """False: everything in a GPSA layer stays as it starts: W_q, W_k, W_v, `pos_proj`, the gates, W_proj and biases.
    Table 3 says "train GPSA" and no more. Taken as the whole attention, because then no part of a frozen layer can make
    up for another; the norms and MLPs around it, the embeddings and the self-attention layers are trained."""
    gate: float = 1.0
    """lambda at the start, in every head: the positional attention has the share sigmoid(lambda)."""

    @model_validator(mode="after")
    def _one_name_for_one_thing(self) -> "ConvitGpsa":
        if self.train_gating and not self.train_gpsa:
            raise ValueError("train_gpsa false keeps the gates from being trained too: it needs train_gating false")
        if not self.conv_init and self.locality_strength != 1:
            raise ValueError("locality_strength has no effect where conv_init is false")
        return self

    def check(self, model: nn.Module) -> None:
        """Refuse models without GPSA layers and, for the local initialisation, head counts that are no square."""
        gpsa: list[Any] = [module for module in model.modules() if hasattr(module, "gating_param")]
        if not gpsa:
            raise VitinitError(
                f"method 'convit_gpsa' initialises gated positional self-attention, and {type(model).__name__} has "
                "none; choose a ConViT (in a grid arch 'convit')"
            )
        heads = gpsa[0].num_heads
        if self.conv_init and math.isqrt(heads) ** 2 != heads:
            raise VitinitError(f"method 'convit_gpsa' needs a square number of heads (4, 9, 16, ...), not {heads}")
        token_grid(model)

    def freeze(self, model: nn.Module) -> None:
        """Exclude the gates, or all of the GPSA layers, from training, as the switches say."""
        for layer in attention_layers(model):
            if layer.gated and not self.train_gpsa:
                layer.module.requires_grad_(False)
            elif layer.gated and not self.train_gating:
                layer.module.gating_param.requires_grad_(False)

    def apply(self, model: nn.Module, generator: Generator, job: Job) -> Aim | None:
        """Set the GPSA layers. Returns the targets where each head's offset is a token (odd k), else None."""
        known = family(model)
        holder: Any = known.model if known else model
        draw_trunc_normal_(holder.cls_token, 0.02, generator)
        gpsa = [layer for layer in attention_layers(model) if layer.gated]
        for layer in gpsa:
            layer.module.gating_param.fill_(self.gate)
        if not self.conv_init:
            return None
        heads = gpsa[0].heads
        side = math.isqrt(heads)
        centre = (side - 1) / 2
        offsets = [(h % side - centre, h // side - centre) for h in range(heads)]
        weight_H3 = torch.tensor([[2 * dx, 2 * dy, -1.0] for dy, dx in offsets])
        for layer in gpsa:
            layer.module.pos_proj.weight.copy_(self.locality_strength * weight_H3)
            layer.module.pos_proj.bias.zero_()
            layer.value_DD.copy_(torch.eye(layer.value_DD.shape[0]))
        if side % 2 == 0:
            return None
        grid = token_grid(model)
        targets_HNN = target_matrices(grid, target_positions(grid, offsets))
        return Aim(targets_HNN.expand(len(gpsa), *targets_HNN.shape))
