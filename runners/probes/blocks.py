"""The blocks of a model, and the patch tokens among what they put out."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn


def blocks_of(model: nn.Module) -> list[nn.Module]:
    """Timm's `blocks`, from the input on; of a model in stages those of all `layers`."""
    holders: Any = [model] if hasattr(model, "blocks") else model.layers
    return [block for holder in holders for block in holder.blocks]


def patch_tokens(output: Tensor, grid: tuple[int, int]) -> tuple[Tensor, tuple[int, int]]:
    """The patch tokens of a block's output, B x N x D, and their rows and columns.

    Args:
        output: B x N x D, tokens without a place first, or B x rows x columns x D where stages have grids of their own.
        grid: of the first tokens.
    """
    if output.ndim == 4:
        rows, columns = output.shape[1:3]
        return output.flatten(1, 2), (rows, columns)
    return output[:, output.shape[1] - grid[0] * grid[1] :], grid
