"""Method `critical_scale`: queries and keys whose logits have a chosen spread, in units of sqrt(ln N)."""

from __future__ import annotations

import math

import torch
from pydantic import PositiveFloat
from torch import nn

from vitinit.initializers.attention import attention_layers, seen_grids
from vitinit.initializers.registry import Initializer, Job, register
from vitinit.initializers.whole_model import draw_normal_


@register
class CriticalScale(Initializer):
    """W_q and W_k are normal, so that logits have the standard deviation `beta` sqrt(ln N) for N keys
    (arXiv 2505.24333).

    Tokens are taken as LayerNorm gives them: D features of variance 1, independent. With entries of variance s^2,
    logits q k / sqrt(d) then have the standard deviation s^2 D, so s^2 = `beta` sqrt(ln N) / D. Above
    `beta` = sqrt(2 / (1 - rho)), where rho is the correlation between tokens, each query attends to few keys only
    (code: aGiorlandino/ICLR-Signal-Propagation-Transformers). That bound is at least sqrt(2).

    Traps. N counts patches, or those of a window where attention is in windows. Biases of W_q and W_k keep their
    base. The head's width d drops out only where attention divides by sqrt(d).
    """

    name = "critical_scale"
    sets = ("query", "key")

    beta: PositiveFloat = 1.0
    """Standard deviation of the logits in units of sqrt(ln N)."""

    def check(self, model: nn.Module) -> None:
        """Refuse normalised queries and keys, whose logits do not depend on W_q and W_k's size, and unknown grids."""
        self.attention_of(model, plain_logits=True)
        seen_grids(model)

    @torch.no_grad()
    def apply(self, model: nn.Module, generator: torch.Generator, job: Job) -> None:
        """Draw W_q and W_k of every attention layer."""
        for layer, grid in zip(attention_layers(model), seen_grids(model), strict=True):
            std = (self.beta * math.log(math.prod(grid)) ** 0.5 / layer.query_HdD.shape[-1]) ** 0.5
            for weight in (layer.query_HdD, layer.key_HdD):
                draw_normal_(weight, std, generator)
