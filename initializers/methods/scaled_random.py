"""Method `scaled_random`: attention and the first MLP Linear small and random, the last one 0."""

from __future__ import annotations

import torch
from pydantic import PositiveFloat
from torch import nn

from vitinit.initializers.attention import attention_layers
from vitinit.initializers.registry import Initializer, Job, register
from vitinit.initializers.whole_model import draw_uniform_


@register
class ScaledRandom(Initializer):
    """W_q, W_k, W_v, W_proj and the first Linear of each MLP are uniform with standard deviation `scale` / sqrt(D).
    The weight of the last Linear of each MLP is 0 (KellerJordan/modded-nanogpt, commit 1ee5d105).

    There it replaced a start of W_v and W_proj as in mimetic. Biases, which that model does not have, keep their base.

    Traps. The limit of the uniform distribution is sqrt(3) times its standard deviation. D is the width of the
    tokens, for W_proj, too, whatever it reads.
    """

    name = "scaled_random"
    sets = ("query", "key", "value", "proj", "mlp_in", "mlp_out")

    scale: PositiveFloat = 0.5
    """Standard deviation in units of 1 / sqrt(D)."""

    def check(self, model: nn.Module) -> None:
        """Refuse attention without an MLP in its block."""
        self.blocks_of(model)

    @torch.no_grad()
    def apply(self, model: nn.Module, generator: torch.Generator, job: Job) -> None:
        """Draw the weights of every block, and clear the last Linear of its MLP."""
        for layer in attention_layers(model):
            width = layer.query_HdD.shape[-1]
            limit = self.scale * (3 / width) ** 0.5
            first, *_, last = layer.mlp.values()
            for weight in (layer.query_HdD, layer.key_HdD, layer.value_DD, layer.proj_DD, first.weight):
                draw_uniform_(weight, limit, generator)
            last.weight.zero_()
