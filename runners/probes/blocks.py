"""The blocks of a model, and the patch tokens among what they put out."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from vitinit.initializers.attention import attention_layers
from vitinit.initializers.errors import VitinitError


def blocks_of(model: nn.Module) -> list[nn.Module]:
    """Blocks that hold attention, from the input on.

    Raises:
        VitinitError: no adapter knows the attention, or its tokens come before the images.
    """
    layers = attention_layers(model)
    if not all(getattr(layer.module, "batch_first", True) for layer in layers):
        raise VitinitError("tokens come before the images (batch_first=False)")
    return list(dict.fromkeys(layer.module if layer.block is None else layer.block for layer in layers))


def patch_tokens(output: Any, grid: tuple[int, int]) -> tuple[Tensor, tuple[int, int]]:
    """The patch tokens of a block's output, B x N x D, and their rows and columns.

    Args:
        output: B x N x D, tokens without a place first, or B x rows x columns x D where stages have grids of their own;
            or a tuple that begins with it.
        grid: of the first tokens.
    """
    output = output[0] if isinstance(output, tuple) else output
    if output.ndim == 4:
        rows, columns = output.shape[1:3]
        return output.flatten(1, 2), (rows, columns)
    return output[:, output.shape[1] - grid[0] * grid[1] :], grid
