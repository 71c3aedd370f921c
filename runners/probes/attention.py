"""How far heads look, how spread out their attention is, and what of a target it has kept."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from initializers.attention import AT_ONCE, AttentionLayer, attention_layers, each_attention, token_grid


@dataclass(frozen=True)
class Attention:
    """Of all layers and heads, between patch tokens, mean over images."""

    maps_LHNN: Tensor
    """Rows add up to 1."""
    entropy_LH: Tensor
    """In nats; of a query in one image."""


@torch.no_grad()
def measured(model: nn.Module, images_BCHW: Tensor) -> Attention:
    """Attention on real activations: what each layer receives when the model sees the images.

    Where there is a class token it is left out, and rows are divided by what remains of them: softmax over the others.
    """
    maps_LHNN = _no_maps(model, images_BCHW)
    tokens = maps_LHNN.shape[-1]
    entropy_LH = maps_LHNN.new_zeros(maps_LHNN.shape[:2])

    def add(number: int, _: AttentionLayer, attention_bHNN: Tensor) -> None:
        among_bHNN = attention_bHNN[:, :, -tokens:, -tokens:]
        if attention_bHNN.shape[-1] > tokens:
            among_bHNN = among_bHNN / among_bHNN.sum(-1, keepdim=True)
        maps_LHNN[number] += among_bHNN.sum(0)
        entropy_LH[number] += torch.special.entr(among_bHNN).sum(-1).mean(-1).sum(0)

    each_attention(model, images_BCHW, add)
    return Attention(maps_LHNN / len(images_BCHW), entropy_LH / len(images_BCHW))


@torch.no_grad()
def of_patch_embedding(model: nn.Module, images_BCHW: Tensor) -> Tensor:
    """Mean maps, L x H x N x N, of every layer on the bare patch embedding, as the released ConViT code takes them.

    No position embedding, no LayerNorm, and no layer before; so these are not maps that the model ever has.
    """
    maps_LHNN = _no_maps(model, images_BCHW)
    for few_BCHW in images_BCHW.split(AT_ONCE):
        tokens_bND = model.patch_embed(few_BCHW)  # type: ignore[operator]
        for number, layer in enumerate(attention_layers(model)):
            maps_LHNN[number] += layer.attention(tokens_bND).sum(0)
    return maps_LHNN / len(images_BCHW)


def _no_maps(model: nn.Module, images_BCHW: Tensor) -> Tensor:
    layers = attention_layers(model)
    rows, columns = token_grid(model)
    return torch.zeros(len(layers), layers[0].heads, rows * columns, rows * columns, device=images_BCHW.device)


def distances(grid: tuple[int, int]) -> Tensor:
    """Euclidean distance between the tokens of a grid of (rows, columns), N x N, in tokens."""
    rows, columns = grid
    places_N2 = torch.cartesian_prod(torch.arange(rows), torch.arange(columns)).double()
    return torch.cdist(places_N2, places_N2, compute_mode="donot_use_mm_for_euclid_dist")


def nonlocality(maps_LHNN: Tensor, grid: tuple[int, int]) -> Tensor:
    """Sum over i, j of A_ij |i - j| / N, L x H, in tokens (d'Ascoli et al., arXiv 2103.10697, equation 8)."""
    return (maps_LHNN * distances(grid).to(maps_LHNN)).sum((-2, -1)) / maps_LHNN.shape[-1]


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
