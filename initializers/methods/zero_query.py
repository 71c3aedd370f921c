"""Method `zero_query`: attention that starts uniform."""

from __future__ import annotations

import torch
from torch import nn

from vitinit.initializers.attention import attention_layers
from vitinit.initializers.registry import Initializer, Job, register


@register
class ZeroQuery(Initializer):
    """W_q and its bias are 0: every query attends to all keys alike, and W_q learns from the first step on.

    One of the rules of muP (code: microsoft/mup), alone. Its others, learning rates by width above all, are no matter
    of initialisation.

    Trap. What is added to the logits stays: relative position biases, and ConViT's gated positions.
    """

    name = "zero_query"
    sets = ("query", "query_bias")
    deterministic = True

    def check(self, model: nn.Module) -> None:
        """Refuse normalised queries, which are no zeros where W_q nearly is: its gradient would be huge."""
        self.attention_of(model, plain_logits=True)

    @torch.no_grad()
    def apply(self, model: nn.Module, generator: torch.Generator, job: Job) -> None:
        """Clear W_q and its bias in every attention layer."""
        for layer in attention_layers(model):
            layer.query_HdD.zero_()
            bias = layer.bias(layer.kind.query)
            if bias is not None:
                bias.zero_()
