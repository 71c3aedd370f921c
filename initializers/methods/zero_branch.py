"""Method `zero_branch`: every block starts as the identity."""

from __future__ import annotations

import torch
from torch import nn

from vitinit.initializers.attention import attention_layers
from vitinit.initializers.registry import Initializer, Job, register


@register
class ZeroBranch(Initializer):
    """W_proj and the last Linear of each MLP are 0, biases too, so that both branches of a block add nothing at first.
    The idea of ReZero (arXiv 2003.04887) and SkipInit (arXiv 2002.10444), without their extra scalar.

    At the first step these two matrices alone have a gradient. The control for every claim about signals in deep
    networks.

    Traps. In a post-norm block a norm follows the sum, so that the block is no identity. Where a norm ends the branch
    (res-post-norm, Swin V2), it multiplies the first gradients by 1 / sqrt(eps), for the variance there is 0.
    """

    name = "zero_branch"
    sets = ("proj", "proj_bias", "mlp_out")
    deterministic = True

    def check(self, model: nn.Module) -> None:
        """Refuse attention without an MLP in its block."""
        self.blocks_of(model)

    @torch.no_grad()
    def apply(self, model: nn.Module, generator: torch.Generator, job: Job) -> None:
        """Clear the last Linear of both branches of every block."""
        for layer in attention_layers(model):
            last = list(layer.mlp.values())[-1]
            for part in (layer.proj_DD, layer.bias(layer.kind.proj), last.weight, last.bias):
                if part is not None:
                    part.zero_()
