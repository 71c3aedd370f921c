"""Base `zero`: every weight of zeros and ones; no weight is drawn."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from vitinit.initializers.registry import register
from vitinit.initializers.whole_model import Convolution, Place, WholeModel


@register
class Zero(WholeModel):
    """ZerO (Zhao et al., TMLR 2022, arXiv 2110.12661): identities and Hadamard transforms; biases 0.

    A weight of m outputs and n inputs is the first m rows of the identity, or where m > n the corner of a Hadamard
    matrix of 2^k rows, k = ceil(log2 m), times 2^(-k/2) as in the released code; the paper has 2^(-(k-1)/2).

    A convolution has this matrix in the middle of its kernel, and 0 elsewhere.

    What is ours, for the paper's code has no transformer: the patch embedding is treated as a Linear; the last Linear
    of a branch is 0, as the last convolution of a branch in the paper's ResNet; a depthwise filter is a one
    in its middle; the head as any weight. A learned position embedding is N(0, 0.02^2), the class token 0.
    """

    name = "zero"

    def matrix(self, weight_OI: Tensor, place: Place, generator: torch.Generator) -> None:
        """Draws nothing."""
        outputs, inputs = weight_OI.shape
        if place.role in ("proj", "mlp_out"):
            weight_OI.zero_()
        elif outputs <= inputs:
            weight_OI.copy_(torch.eye(outputs, inputs))
        else:
            order = math.ceil(math.log2(outputs))
            weight_OI.copy_(2 ** (-order / 2) * hadamard(order)[:outputs, :inputs])

    def convolution(self, module: Convolution, generator: torch.Generator) -> None:
        """As a Linear where patches do not overlap, else by the middle of the kernel; bias 0."""
        if module.stride == module.kernel_size:
            super().convolution(module, generator)
            return
        module.weight.zero_()
        index: Any = (..., *(size // 2 for size in module.kernel_size))
        middle = module.weight[index]
        if module.groups > 1 and middle.shape[1] == 1:
            middle.fill_(1.0)
        else:
            self.matrix(middle, Place(), generator)
        if module.bias is not None:
            module.bias.zero_()


def hadamard(order: int) -> Tensor:
    """Sylvester's, 2^order x 2^order, of ones and minus ones."""
    matrix = torch.ones(1, 1)
    for _ in range(order):
        matrix = torch.cat([torch.cat([matrix, matrix], 1), torch.cat([matrix, -matrix], 1)])
    return matrix
