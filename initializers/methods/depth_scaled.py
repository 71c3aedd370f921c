"""Method `depth_scaled`: the deeper, the less a branch adds."""

from __future__ import annotations

import re
from typing import Literal

import torch
from torch import nn

from vitinit.initializers.attention import attention_layers, family
from vitinit.initializers.errors import VitinitError
from vitinit.initializers.registry import Initializer, Job, register


@register
class DepthScaled(Initializer):
    """W_proj and the last Linear of each MLP are divided, so that the residual stream keeps its size with depth.

    By sqrt(2 l) in block l = 1, 2, ... (BEiT, EVA and timm's `fix_init`), or by sqrt(2 L) in each of L blocks (as GPT-2
    does, from general knowledge). Biases keep their base, like all else.
    """

    name = "depth_scaled"
    sets = ("proj", "mlp_out")
    deterministic = True

    rule: Literal["fix_init", "gpt2"] = "fix_init"

    def check(self, model: nn.Module) -> None:
        """Refuse attention without an MLP in its block, and several models, whose blocks do not add to one stream."""
        towers = {re.sub(r"\d+", "#", layer.name): layer.name for layer in self.blocks_of(model)}
        if not family(model) and len(towers) > 1:
            raise VitinitError(
                f"{self.described} counts the blocks of one residual stream, and {type(model).__name__} has blocks in "
                f"several places, as of {' and '.join(map(repr, towers.values()))}: give one of them"
            )

    @torch.no_grad()
    def apply(self, model: nn.Module, generator: torch.Generator, job: Job) -> None:
        """Divide the last Linear of both branches of every block."""
        layers = attention_layers(model)
        for block, layer in enumerate(layers, 1):
            branches = 2 * (block if self.rule == "fix_init" else len(layers))
            for weight in (layer.proj_DD, list(layer.mlp.values())[-1].weight):
                weight /= branches**0.5
