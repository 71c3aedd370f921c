"""Bases `orthogonal` and `spectral`: every weight a (semi-)orthogonal matrix, times a number."""

import math
from typing import Literal

import torch
from pydantic import PositiveFloat
from torch import Generator, Tensor, nn

from vitinit.initializers.registry import register
from vitinit.initializers.threads import one_thread
from vitinit.initializers.whole_model import Place, WholeModel


def draw_orthogonal_(weight_OI: Tensor, gain: float, generator: Generator) -> None:
    """Fill with orthonormal rows, or columns where these are fewer, times `gain`."""
    with one_thread():
        weight_OI.copy_(nn.init.orthogonal_(torch.empty(weight_OI.shape), gain, generator))


@register
class Orthogonal(WholeModel):
    """Orthogonal initialisation (Saxe et al., arXiv 1312.6120), by `torch.nn.init.orthogonal_`; biases are 0.

    Rows are orthonormal, or columns where these are fewer, times `gain`.

    Trap. Of the fused W_q, W_k and W_v, as one matrix, the columns are orthonormal, and none of the three is
    orthogonal.
    """

    name = "orthogonal"

    qkv: Literal["per_matrix", "fused", "per_head"] = "per_matrix"
    """Orthogonal matrices: W_q, W_k and W_v each, all three as one, or one a head (heads then overlap)."""
    gain: PositiveFloat = 1.0

    def matrix(self, weight_OI: Tensor, place: Place, generator: Generator) -> None:
        """Set orthonormal rows or columns."""
        draw_orthogonal_(weight_OI, self.gain, generator)


@register
class Spectral(WholeModel):
    """The spectral condition (Yang et al., arXiv 2310.17813): spectral norm sqrt(outputs / inputs); biases are 0.

    Weights are orthogonal, so have exactly that norm. W_q, W_k and W_v are three matrices.

    Trap. The paper's learning rates by layer are no matter of initialisation: this is half of its recipe.
    """

    name = "spectral"

    def matrix(self, weight_OI: Tensor, place: Place, generator: Generator) -> None:
        """Set a matrix of spectral norm sqrt(outputs / inputs)."""
        outputs, inputs = weight_OI.shape
        draw_orthogonal_(weight_OI, math.sqrt(outputs / inputs), generator)
