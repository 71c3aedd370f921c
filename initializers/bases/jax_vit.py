"""Base `jax_vit`: what Google's JAX code of the Vision Transformer starts from."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn

from vitinit.initializers.registry import register
from vitinit.initializers.whole_model import (
    Convolution,
    Place,
    WholeModel,
    draw_normal_,
    draw_xavier_uniform_,
)

CUT = 0.87962566103423978
"""Standard deviation of a standard normal that is cut at -2 and 2."""


@register
class JaxVit(WholeModel):
    """google-research/big_vision's Vision Transformer (`vit.py`).

    Weights are Xavier uniform, U(+-sqrt(6 / (inputs + outputs))), the head is 0. The patch embedding is a normal of
    variance 1 / fan_in, cut at two standard deviations and corrected for it. Biases are 0, those of MLPs N(0,
    1e-6^2). A learned position embedding is N(0, 1 / D), the class token 0.

    Trap. timm's `weight_init="jax"` takes the fused W_q, W_k and W_v as one matrix, which is `qkv: fused`: a standard
    deviation smaller by the square root of 2, and logits half the size. Its position embedding is N(0, 0.02^2).
    """

    name = "jax_vit"
    mlp_bias_std = 1e-6

    qkv: Literal["per_matrix", "fused"] = "per_matrix"
    head_bias: float = 0.0

    def matrices(self, place: Place) -> int:
        """One where W_q, W_k and W_v are taken together."""
        return 1 if self.qkv == "fused" else place.matrices

    def matrix(self, weight_OI: Tensor, place: Place, generator: torch.Generator) -> None:
        """Xavier uniform; the head 0."""
        if place.role == "head":
            weight_OI.zero_()
        else:
            draw_xavier_uniform_(weight_OI, generator)

    def bias(self, bias_O: Tensor, fan_in: int, place: Place, generator: torch.Generator) -> None:
        """0; of an MLP N(0, 1e-6^2); of the head as asked."""
        super().bias(bias_O, fan_in, place, generator)
        if place.role == "head":
            bias_O.fill_(self.head_bias)

    def convolution(self, module: Convolution, generator: torch.Generator) -> None:
        """Flax's `lecun_normal`, bias 0."""
        std = math.sqrt(1 / module.weight[0].numel()) / CUT
        fresh = torch.empty(module.weight.shape)
        module.weight.copy_(nn.init.trunc_normal_(fresh, std=std, a=-2 * std, b=2 * std, generator=generator))
        if module.bias is not None:
            module.bias.zero_()

    def embedding(self, name: str, parameter: Tensor, generator: torch.Generator) -> None:
        """Position embedding N(0, 1 / D), class token 0."""
        draw_normal_(parameter, parameter.shape[-1] ** -0.5 if name == "pos_embed" else 0.0, generator)
