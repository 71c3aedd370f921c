"""Base `sinusoidal`: every weight a grid of sines."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from vitinit.initializers.attention import attention_layers
from vitinit.initializers.errors import VitinitError
from vitinit.initializers.registry import register
from vitinit.initializers.whole_model import Place, WholeModel

TINY = 1e-8
"""Upper bound of the rounding error of sines that are 0."""


@register
class Sinusoidal(WholeModel):
    """Sinusoidal initialisation (arXiv 2505.12909, NeurIPS 2025): W_ij = a sin(i (2 pi j / n + 2 pi / m)), biases 0.

    i = 1 to m counts outputs, j = 0 to n - 1 inputs, and a makes the variance of all entries the one asked for. The
    patch embedding and the head are set so, too. The paper leaves embeddings alone: a learned position embedding is
    N(0, 0.02^2) here, the class token 0.

    Traps. Of a square matrix row n - i is minus row i, so that its rank is n / 2 - 1, and W_q = W_k = W_v where they
    are three. As one matrix of 3 D rows its rank is D. Of 2 x 2 (two heads that talk) all sines are 0, so all weights.
    """

    name: ClassVar[str] = "sinusoidal"

    qkv: Literal["separate", "fused"] = "separate"
    variance: Literal["fan_sum", "fan_in"] = "fan_sum"
    """`fan_sum`: 2 / (m + n), as in the paper. `fan_in`: 2 / n, as in a later version of its code."""

    def notes(self, model: nn.Module) -> list[str]:
        """Add the rank of the square weights of attention."""
        try:
            layer = attention_layers(model)[0]
        except VitinitError:  # no attention, or none that is known
            return super().notes(model)
        query_DD = layer.query_HdD.flatten(0, 1)
        ranks = [f"{name} {_rank(weight)}" for name, weight in (("W_q", query_DD), ("W_proj", layer.proj_DD))]
        said = f"rank of {len(layer.proj_DD)} in the first layer: {', '.join(ranks)}"
        return [*super().notes(model), said]

    def matrices(self, place: Place) -> int:
        """One where W_q, W_k and W_v are taken together."""
        return 1 if self.qkv == "fused" else place.matrices

    def matrix(self, weight_OI: Tensor, place: Place, generator: torch.Generator) -> None:
        """Draws nothing."""
        outputs, inputs = weight_OI.shape
        neuron_O1 = torch.arange(1, outputs + 1, dtype=torch.float64)[:, None]
        place_I = torch.arange(inputs, dtype=torch.float64) * (2 * math.pi / inputs) + 2 * math.pi / outputs
        waves_OI = torch.sin(neuron_O1 * place_I)
        if waves_OI.abs().max() < TINY:
            weight_OI.zero_()
            return
        wanted = 2 / (inputs if self.variance == "fan_in" else inputs + outputs)
        weight_OI.copy_(waves_OI * torch.sqrt(wanted / waves_OI.var()))


def _rank(weight_OI: Tensor) -> int:
    return int(torch.linalg.matrix_rank(weight_OI.cpu().double(), atol=1e-5))
