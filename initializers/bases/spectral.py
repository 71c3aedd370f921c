"""Base `spectral`: every weight with the spectral norm that suits its shape."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from vitinit.initializers.registry import register
from vitinit.initializers.threads import one_thread
from vitinit.initializers.whole_model import Place, WholeModel


@register
class Spectral(WholeModel):
    """The spectral condition (Yang et al., arXiv 2310.17813): spectral norm sqrt(outputs / inputs); biases are 0.

    Weights are orthogonal, so have exactly that norm. W_q, W_k and W_v are three matrices.

    Trap. The paper's learning rates by layer are no matter of initialisation: this is half of its recipe.
    """

    name = "spectral"

    def matrix(self, weight_OI: Tensor, place: Place, generator: torch.Generator) -> None:
        """Set a matrix of spectral norm sqrt(outputs / inputs)."""
        outputs, inputs = weight_OI.shape
        gain = math.sqrt(outputs / inputs)
        with one_thread():
            weight_OI.copy_(nn.init.orthogonal_(torch.empty(weight_OI.shape), gain, generator))
