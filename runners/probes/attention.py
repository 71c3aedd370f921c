"""What attention has kept of a target, and how the released ConViT code measures it; see `initializers.diagnostics`."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from initializers.attention import AT_ONCE, attention_layers
from initializers.diagnostics import no_maps


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


def target_mass(maps_LHNN: Tensor, targets_LHNN: Tensor) -> Tensor:
    """Attention on the target, L x H: a mean over the queries that have one.

    Args:
        maps_LHNN: attention.
        targets_LHNN: 0 and 1; of as many layers, from the first on, as have a target.
    """
    masses = [
        (maps_HNN * targets_HNN).sum((-2, -1)) / targets_HNN.any(-1).sum(-1)
        for maps_HNN, targets_HNN in zip(maps_LHNN, targets_LHNN.to(maps_LHNN.device), strict=False)
    ]
    return torch.stack(masses)
