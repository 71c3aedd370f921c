"""Method `conditioned`: attention weights of condition number 1."""

from __future__ import annotations

import torch
from torch import nn

from vitinit.initializers.attention import attention_layers
from vitinit.initializers.registry import Initializer, Job, register
from vitinit.initializers.whole_model import singular_vectors


@register
class Conditioned(Initializer):
    """Conditioned initialisation (Saratchandran and Lucey, ICLR 2026, OpenReview cKNOCYPo2W), read at second hand.

    W_q and W_k of each head (d x D, d features of a head, D the width) are independent random matrices with orthonormal
    rows: the U V^T of a Gaussian matrix. W_v is a rectangular identity. W_proj, biases and all else keep their base.

    Traps. The paper's code is not released, and its words leave open which identity a head gets: here every head reads
    the first d channels. The norm of a head's W_q is sqrt(d), two to four times that of a trunc normal of 0.02.
    """

    name = "conditioned"

    sets = ("query", "key", "value")

    def check(self, model: nn.Module) -> None:
        """Refuse normalised queries and keys, and values of another width than keys."""
        self.attention_of(model, sized_by_keys=True, plain_logits=True)

    @torch.no_grad()
    def apply(self, model: nn.Module, generator: torch.Generator, job: Job) -> None:
        """Overwrite W_q and W_k, and W_v of every attention layer."""
        for layer in attention_layers(model):
            heads, features, width = layer.query_HdD.shape
            for weight_HdD in (layer.query_HdD, layer.key_HdD):
                for weight_dD in weight_HdD:
                    u, vh = singular_vectors(features, width, generator)
                    weight_dD.copy_(u @ vh)
            layer.value_DD.copy_(torch.eye(features, width).repeat(heads, 1))
