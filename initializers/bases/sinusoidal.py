"""Base `sinusoidal`: every weight a grid of sines."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from vitinit.initializers.registry import register
from vitinit.initializers.whole_model import Place, WholeModel


@register
class Sinusoidal(WholeModel):
    """Sinusoidal initialisation (arXiv 2505.12909, NeurIPS 2025): W_ij = a sin(i (2 pi j / n + 2 pi / m)), biases 0.

    i = 1 to m counts outputs, j = 0 to n - 1 inputs, and a makes the variance of all entries 2 / (m + n). The
    patch embedding and the head are set so, too. The paper leaves embeddings alone: a learned position embedding is
    N(0, 0.02^2) here, the class token 0.

    Traps. Of a square matrix row n - i is minus row i, so that its rank is n / 2 - 1, and W_q = W_k = W_v.
    """

    name = "sinusoidal"

    def matrix(self, weight_OI: Tensor, place: Place, generator: torch.Generator) -> None:
        """Draws nothing."""
        outputs, inputs = weight_OI.shape
        neuron_O1 = torch.arange(1, outputs + 1, dtype=torch.float64)[:, None]
        place_I = torch.arange(inputs, dtype=torch.float64) * (2 * math.pi / inputs) + 2 * math.pi / outputs
        waves_OI = torch.sin(neuron_O1 * place_I)
        weight_OI.copy_(waves_OI * torch.sqrt(2 / (inputs + outputs) / waves_OI.var()))
