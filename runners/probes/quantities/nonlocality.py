"""Nonlocality of attention, on the layers' inputs and as the released ConViT code measures it."""

from typing import Any

import torch
from torch import Tensor

from vitinit.initializers.attention import AT_ONCE, attention_layers, rotary
from vitinit.initializers.diagnostics import nonlocality as mean_distance
from vitinit.runners.probes.registry import Seen, probe


@probe
def nonlocality(seen: Seen) -> list[Tensor]:
    """Mean distance from query to key, by layer and head, in tokens (arXiv 2103.10697, equation 8)."""
    return list(map(mean_distance, seen.attention.maps, seen.attention.grids))


@probe
@torch.no_grad()
def nonlocality_reference(seen: Seen) -> list[Tensor] | None:
    """Nonlocality of every layer's maps on the bare patch embedding, as the released ConViT code takes them.

    No position embedding, no LayerNorm, and no layer before; so these are not maps that the model ever has. None where
    there are none of bare patches: in windows, with rotations, or without timm's patch embedding.
    """
    layers = attention_layers(seen.model)
    # BEiT's biases are of a class token, too
    if any(layer.window for layer in layers) or rotary(seen.model) or not hasattr(seen.model, "patch_embed"):
        return None
    sums: list[Any] = [0.0] * len(layers)
    for few_BCHW in seen.images_BCHW.split(AT_ONCE):
        tokens_bND = seen.model.patch_embed(few_BCHW)  # type: ignore[operator]
        for number, layer in enumerate(layers):
            sums[number] += layer.attention(tokens_bND).sum(0)
    return [mean_distance(sum_HNN / len(seen.images_BCHW), seen.grid) for sum_HNN in sums]
