"""Nonlocality of attention, on the layers' inputs and as the released ConViT code measures it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from vitinit.initializers.attention import AT_ONCE, attention_layers, token_grid
from vitinit.initializers.diagnostics import nonlocality as mean_distance
from vitinit.initializers.diagnostics import zeros
from vitinit.runners.probes.registry import Seen, probe


@probe
def nonlocality(seen: Seen) -> list[Tensor]:
    """Mean distance from query to key, by layer and head, in tokens (arXiv 2103.10697, equation 8)."""
    return [mean_distance(*each) for each in zip(seen.attention.maps, seen.attention.grids, strict=True)]


@probe
def nonlocality_reference(seen: Seen) -> list[Tensor] | None:
    """Nonlocality of the maps that the released ConViT code takes; None where attention cannot be of bare patches."""
    if any(layer.window for layer in attention_layers(seen.model)):  # BEiT's biases are of a class token, too
        return None
    return [mean_distance(maps_HNN, seen.grid) for maps_HNN in of_patch_embedding(seen.model, seen.images_BCHW)]


@torch.no_grad()
def of_patch_embedding(model: nn.Module, images_BCHW: Tensor) -> list[Tensor]:
    """Mean maps, H x N x N, of every layer on the bare patch embedding, as the released ConViT code takes them.

    No position embedding, no LayerNorm, and no layer before; so these are not maps that the model ever has. Attention
    is not in windows here.
    """
    layers = attention_layers(model)
    sums = [zeros(layer, token_grid(model), images_BCHW) for layer in layers]
    for few_BCHW in images_BCHW.split(AT_ONCE):
        tokens_bND = model.patch_embed(few_BCHW)  # type: ignore[operator]
        for layer, sum_HNN in zip(layers, sums, strict=True):
            sum_HNN += layer.attention(tokens_bND).sum(0)
    return [sum_HNN / len(images_BCHW) for sum_HNN in sums]
