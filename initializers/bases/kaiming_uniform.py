"""Base `kaiming_uniform`: what PyTorch does when nobody asks."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from vitinit.initializers.registry import register
from vitinit.initializers.whole_model import Place, WholeModel, draw_uniform_


@register
class KaimingUniform(WholeModel):
    """PyTorch's default: Linear weights and biases U(+-1/sqrt(fan_in)).

    The row "Kaiming Uniform" of arXiv 2404.01139 (timm `weight_init="skip"`). A learned position embedding is
    N(0, 0.02^2) and the class token 0, as timm leaves them in that mode.
    """

    name = "kaiming_uniform"
    every_linear_alike = True
    fused = True

    def matrix(self, weight_OI: Tensor, place: Place, generator: torch.Generator) -> None:
        """U(+-1/sqrt(fan_in))."""
        draw_uniform_(weight_OI, 1 / math.sqrt(weight_OI.shape[1]), generator)

    def bias(self, bias_O: Tensor, fan_in: int, place: Place, generator: torch.Generator) -> None:
        """U(+-1/sqrt(fan_in))."""
        draw_uniform_(bias_O, 1 / math.sqrt(fan_in), generator)
