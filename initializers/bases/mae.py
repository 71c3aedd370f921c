"""Base `mae`: what masked autoencoders start from."""

from __future__ import annotations

import torch
from pydantic import PositiveFloat
from torch import Tensor

from vitinit.initializers.registry import register
from vitinit.initializers.whole_model import (
    Convolution,
    Place,
    WholeModel,
    draw_trunc_normal_,
    draw_xavier_uniform_,
    pytorch_default_,
)


@register
class Mae(WholeModel):
    """facebookresearch/mae's encoder (`models_mae.py`), and the head that it is fine-tuned with.

    All weights, the patch embedding's too, are U(+-sqrt(6 / (inputs + outputs))), biases 0, the class token N(0,
    0.02^2). The bias of the patch embedding stays as PyTorch has it. The head is a trunc normal of `head_std`. Its
    position embedding is fixed; a learned one is N(0, 0.02^2) here.

    Trap. The fused W_q, W_k and W_v count as one matrix, which makes them smaller by the square root of 2 than in JAX.
    """

    name = "mae"
    fused = True
    class_token_std = 0.02

    head_std: PositiveFloat = 2e-5

    def matrix(self, weight_OI: Tensor, place: Place, generator: torch.Generator) -> None:
        """Xavier uniform; the head trunc-normal."""
        if place.role == "head":
            draw_trunc_normal_(weight_OI, self.head_std, generator)
        else:
            draw_xavier_uniform_(weight_OI, generator)

    def convolution(self, module: Convolution, generator: torch.Generator) -> None:
        """Xavier uniform as a Linear, the bias as PyTorch has it."""
        pytorch_default_(module, generator)
        draw_xavier_uniform_(module.weight, generator)
