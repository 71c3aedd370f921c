"""Base `zero`: every weight of zeros and ones, nothing drawn."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import torch
from torch import Tensor

from initializers.registry import register
from initializers.whole_model import ByMatrix, Place


@register
class Zero(ByMatrix):
    """ZerO (Zhao et al., TMLR 2022, arXiv 2110.12661): identities and Hadamard transforms; biases 0.

    A weight of m outputs and n inputs is the first m rows of the identity, or where m > n the corner of a Hadamard
    matrix of 2^k rows, k = ceil(log2 m), times `hadamard`'s constant.

    What is ours, for the paper's code has no transformer: the patch embedding is treated as a Linear; the last Linear
    of a branch is 0 by default, as the last convolution of a branch in the paper's ResNet; the head as any weight.
    Embeddings are those of timm.
    """

    name: ClassVar[str] = "zero"

    hadamard: Literal["released", "paper"] = "released"
    """The constant: 2^(-k/2) in the released code, 2^(-(k-1)/2) in the paper."""
    last_of_branch: Literal["zero", "identity"] = "zero"

    def matrix(self, weight_OI: Tensor, place: Place, generator: torch.Generator) -> None:
        """Draws nothing."""
        outputs, inputs = weight_OI.shape
        if place.role in ("proj", "mlp_out") and self.last_of_branch == "zero":
            weight_OI.zero_()
        elif outputs <= inputs:
            weight_OI.copy_(torch.eye(outputs, inputs))
        else:
            order = math.ceil(math.log2(outputs))
            constant = 2 ** (-(order - (self.hadamard == "paper")) / 2)
            weight_OI.copy_(constant * hadamard(order)[:outputs, :inputs])


def hadamard(order: int) -> Tensor:
    """Sylvester's, 2^order x 2^order, of ones and minus ones."""
    matrix = torch.ones(1, 1)
    for _ in range(order):
        matrix = torch.cat([torch.cat([matrix, matrix], 1), torch.cat([matrix, -matrix], 1)])
    return matrix
