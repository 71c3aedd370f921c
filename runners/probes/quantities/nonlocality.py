"""How far attention looks, on what the layers receive and as the released ConViT code measures it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from initializers.attention import AT_ONCE, attention_layers
from initializers.diagnostics import no_maps
from initializers.diagnostics import nonlocality as mean_distance
from runners.probes.registry import Seen, probe


@probe
def nonlocality(seen: Seen) -> Tensor:
    """Mean distance from query to key, L x H, in tokens (arXiv 2103.10697, equation 8)."""
    return mean_distance(seen.attention.maps_LHNN, seen.grid)


@probe
def nonlocality_reference(seen: Seen) -> Tensor:
    """The same of the maps that the released ConViT code takes."""
    return mean_distance(of_patch_embedding(seen.model, seen.images_BCHW), seen.grid)


@torch.no_grad()
def of_patch_embedding(model: nn.Module, images_BCHW: Tensor) -> Tensor:
    """Mean maps, L x H x N x N, of every layer on the bare patch embedding, as the released ConViT code takes them.

    No position embedding, no LayerNorm, and no layer before; so these are not maps that the model ever has.
    """
    maps_LHNN = no_maps(model, images_BCHW.device)
    for few_BCHW in images_BCHW.split(AT_ONCE):
        tokens_bND = model.patch_embed(few_BCHW)  # type: ignore[operator]
        for number, layer in enumerate(attention_layers(model)):
            maps_LHNN[number] += layer.attention(tokens_bND).sum(0)
    return maps_LHNN / len(images_BCHW)
