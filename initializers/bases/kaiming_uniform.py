"""Base `kaiming_uniform`: what PyTorch does when nobody asks."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from vitinit.initializers.registry import register
from vitinit.initializers.whole_model import WholeModel, draw_normal_, pytorch_default_


@register
class KaimingUniform(WholeModel):
    """PyTorch's default: Linear weights and biases U(+-1/sqrt(fan_in)).

    The row "Kaiming Uniform" of arXiv 2404.01139 (timm `weight_init="skip"`). A learned position embedding is
    N(0, 0.02^2) and the class token 0, as timm leaves them in that mode.
    """

    name: ClassVar[str] = "kaiming_uniform"

    def linear(self, module: nn.Linear, generator: torch.Generator) -> None:
        """Weight and bias U(+-1/sqrt(fan_in))."""
        pytorch_default_(module, generator)

    def embedding(self, name: str, parameter: Tensor, generator: torch.Generator) -> None:
        """Position embedding N(0, 0.02^2), class token 0."""
        if name == "pos_embed":
            draw_normal_(parameter, 0.02, generator)
        else:
            parameter.zero_()
