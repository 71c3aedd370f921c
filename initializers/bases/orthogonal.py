"""Base `orthogonal`: every weight a (semi-)orthogonal matrix."""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import PositiveFloat
from torch import Tensor, nn

from vitinit.initializers.registry import register
from vitinit.initializers.threads import one_thread
from vitinit.initializers.whole_model import Place, WholeModel


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

    def matrices(self, place: Place) -> int:
        """As `qkv` has it."""
        return {"fused": 1, "per_matrix": place.matrices, "per_head": place.matrices * place.heads}[self.qkv]

    def matrix(self, weight_OI: Tensor, place: Place, generator: torch.Generator) -> None:
        """Orthonormal rows or columns."""
        with one_thread():
            weight_OI.copy_(nn.init.orthogonal_(torch.empty(weight_OI.shape), self.gain, generator))
