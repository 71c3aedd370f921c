"""A class for every pixel: a linear classifier on each patch token, enlarged bilinearly (Strudel et al., 2105.05633).

It is the classifier that the family has, so that bases set it, and methods leave it, as in any other run.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor, nn

    from vitinit.benchmark.models.family import ModelSpec


def predicting_pixels(model: nn.Module, spec: ModelSpec) -> nn.Module:
    """Make a classifier predict a class for each pixel: its output is B x S x S x classes, the class last.

    Parameters, their names and the state dict stay. Class tokens are left out, and a norm that comes after pooling is
    of every token.

    Args:
        model: of a family that is `dense`.
        spec: its own.
    """
    import torch

    changed: Any = model
    # moves with the model: made in the forward pass, it would be sent to the device each time
    tokens_GG = torch.eye(spec.grid)
    # of each of G tokens for each of S pixels of a line: bilinear, corners not aligned
    enlarging_GS = torch.nn.functional.interpolate(tokens_GG[None], size=spec.image_size, mode="linear")[0]
    model.register_buffer("enlarging_GS", enlarging_GS, persistent=False)
    changed.forward_head = partial(_logits_of_pixels, model, spec.grid)
    return model


def _logits_of_pixels(model: Any, grid: int, features: Tensor) -> Tensor:
    import torch

    tokens_BND = features.flatten(2).transpose(1, 2) if features.ndim == 4 else features[:, -(grid**2) :]
    norm = getattr(model, "fc_norm", None)
    logits_BNK = model.head(model.head_drop(norm(tokens_BND) if norm else tokens_BND))
    logits_BGGK = logits_BNK.unflatten(1, (grid, grid))
    # two products, and not F.interpolate: on a GPU its gradient has no order of summation that is always the same
    enlarging_GS = model.enlarging_GS.to(logits_BGGK)
    return torch.einsum("gs, bghk, ht -> bstk", enlarging_GS, logits_BGGK, enlarging_GS)
