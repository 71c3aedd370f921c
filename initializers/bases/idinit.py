"""Base `idinit`: every weight a padded identity, as we read IDInit."""

from __future__ import annotations

import torch
from pydantic import NonNegativeFloat, PositiveFloat
from torch import Tensor

from vitinit.initializers.registry import register
from vitinit.initializers.whole_model import Place, WholeModel


@register
class IdInit(WholeModel):
    """IDInit (arXiv 2503.04626, ICLR 2025), our reading: no code of its authors was found.

    With m outputs and n inputs, a weight is `tau` where i = j modulo min(m, n), and 0 elsewhere, plus noise of
    std `loose`. The last Linear of a branch starts near 0: `eps` where i = j; and -`eps` at i = j modulo m in the
    columns from m on, or where there are none at j = i + 1 modulo n. Biases are 0.

    Not verified: `tau` for GELU, how the paper treats W_q, W_k and W_v (here three matrices), any result on a ViT. A
    convolution is the Linear from all that it sees. A learned position embedding is N(0, 0.02^2), the class token 0.
    """

    name = "idinit"

    tau: PositiveFloat = 1.0
    eps: PositiveFloat = 1e-6
    loose: NonNegativeFloat = 1e-6

    def matrix(self, weight_OI: Tensor, place: Place, generator: torch.Generator) -> None:
        """Set an identity of `tau`, or nearly 0 at the end of a branch."""
        outputs, inputs = weight_OI.shape
        if place.role in ("proj", "mlp_out"):
            weight_OI.copy_(_near_zero(outputs, inputs, self.eps))
        else:
            noise_OI = torch.empty(outputs, inputs).normal_(generator=generator)
            weight_OI.copy_(self.tau * _repeated(outputs, inputs) + self.loose * noise_OI)


def _repeated(rows: int, columns: int) -> Tensor:
    """1 where i = j modulo the shorter side."""
    short = min(rows, columns)
    return (torch.arange(rows)[:, None] % short == torch.arange(columns) % short).float()


def _near_zero(rows: int, columns: int, eps: float) -> Tensor:
    weight = eps * torch.eye(rows, columns)
    if rows < columns:
        weight[:, rows:] = -eps * _repeated(rows, columns)[:, rows:]
    else:
        row = torch.arange(rows)
        weight[row, (row + 1) % columns] = -eps
    return weight
