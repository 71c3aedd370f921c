"""Base `torchvision_vit`: what torchvision's Vision Transformer starts from."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from vitinit.initializers.registry import register
from vitinit.initializers.whole_model import (
    Convolution,
    Place,
    WholeModel,
    draw_trunc_normal_,
    draw_uniform_,
    draw_xavier_uniform_,
)


@register
class TorchvisionVit(WholeModel):
    """torchvision's `VisionTransformer`, attention included, which is that of `nn.MultiheadAttention`.

    W_q, W_k and W_v together, and MLPs, are U(+-sqrt(6 / (inputs + outputs))), W_proj is U(+-1 / sqrt(D)), the head
    0. The patch embedding is a trunc normal of variance 1 / fan_in. Biases are 0, those of MLPs N(0, 1e-6^2), the
    position embedding is N(0, 0.02^2), the class token 0.

    Trap. `nn.MultiheadAttention` counts W_q, W_k and W_v as one matrix (pytorch issue 166378): they are smaller by the
    square root of 2 than in JAX.
    """

    name = "torchvision_vit"
    fused = True
    mlp_bias_std = 1e-6

    def matrix(self, weight_OI: Tensor, place: Place, generator: torch.Generator) -> None:
        """Xavier uniform; W_proj as PyTorch has it; the head 0."""
        if place.role == "head":
            weight_OI.zero_()
        elif place.role == "proj":
            draw_uniform_(weight_OI, weight_OI.shape[1] ** -0.5, generator)
        else:
            draw_xavier_uniform_(weight_OI, generator)

    def convolution(self, module: Convolution, generator: torch.Generator) -> None:
        """Trunc-normal of variance 1 / fan_in, bias 0."""
        draw_trunc_normal_(module.weight, math.sqrt(1 / module.weight[0].numel()), generator)
        if module.bias is not None:
            module.bias.zero_()
