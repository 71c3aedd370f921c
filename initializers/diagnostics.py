"""Measurements of a model's attention: distance, entropy, and spectra of its weights.

Measuring changes nothing and draws no random number.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from vitinit.initializers.attention import (
    AT_ONCE,
    AttentionLayer,
    attention_layers,
    evaluated,
    seen_grids,
    token_grid,
)
from vitinit.initializers.errors import VitinitError
from vitinit.initializers.report import LayerStart, Spectra
from vitinit.initializers.threads import one_thread


@torch.no_grad()
def attention_input(model: nn.Module, images_BCHW: Tensor, layer: int = 0) -> Tensor:
    """Return the input of an attention layer (default: the first): B images or windows x N x D, no class token."""
    seen: list[Tensor] = []
    attends = attention_layers(model)[layer]

    hook = attends.module.register_forward_pre_hook(
        lambda _, inputs, named: seen.append(attends.tokens(inputs, named)), with_kwargs=True
    )
    with evaluated(model, [hook]):
        model(images_BCHW)
    return seen[0][:, -math.prod(seen_grids(model)[layer]) :]


@torch.no_grad()
def each_attention(
    model: nn.Module,
    images_BCHW: Tensor,
    see: Callable[[int, AttentionLayer, Tensor], None],
) -> None:
    """Show the attention of every layer while the model sees these images, a few of them at a time.

    Args:
        model: evaluated; it is left as it was.
        images_BCHW: all of them, on the model's device.
        see: called as see(number of the layer, layer, its map b x H x N x N, class token included; b is the number of
            windows where attention is in windows); not for a layer that the model does not call.
    """
    hooks = [
        layer.module.register_forward_pre_hook(
            lambda _, inputs, named, number=number, layer=layer: see(number, layer, layer.attention(*inputs, **named)),
            with_kwargs=True,
        )
        for number, layer in enumerate(attention_layers(model))
    ]
    with evaluated(model, hooks):
        for few_BCHW in images_BCHW.split(AT_ONCE):
            model(few_BCHW)


@dataclass(frozen=True)
class AttentionStatistics:
    """Attention statistics of each layer, between patch tokens, mean over images and windows."""

    maps: list[Tensor]
    """H x N x N; rows add up to 1."""
    entropy: list[Tensor]
    """H, in nats; of a query in one image."""
    grids: list[tuple[int, int]]
    """Rows and columns of the N tokens: the token grid, or a window."""


def between_tokens(attention_BHNN: Tensor, tokens: int) -> Tensor:
    """Attention between the patch tokens, which come last.

    Where there is a class token it is left out, and rows are divided by what remains of them: softmax over the others.
    """
    found = attention_BHNN.shape[-1]
    if found < tokens:
        raise VitinitError(
            f"attention is among {found} tokens, and there are {tokens} places: the model leaves some out, or the "
            "images are smaller than those that it is made for"
        )
    if found == tokens:
        return attention_BHNN
    among_BHNN = attention_BHNN[:, :, -tokens:, -tokens:]
    return among_BHNN / among_BHNN.sum(-1, keepdim=True)


def entropies(attention_BHNN: Tensor) -> Tensor:
    """Entropy in nats, mean over the queries: B x H."""
    return torch.special.entr(attention_BHNN).sum(-1).mean(-1)


@torch.no_grad()
def measured(model: nn.Module, images_BCHW: Tensor) -> AttentionStatistics:
    """Attention on real activations: what each layer receives when the model sees the images.

    Raises:
        VitinitError: a layer is not called.
    """
    grids, layers = seen_grids(model), attention_layers(model)
    sums: list[Any] = [0.0] * len(layers)
    entropies_H, counts = [*sums], [0] * len(layers)

    def add(number: int, _: AttentionLayer, attention_bHNN: Tensor) -> None:
        among_bHNN = between_tokens(attention_bHNN, math.prod(grids[number]))
        sums[number] += among_bHNN.sum(0)
        entropies_H[number] += entropies(among_bHNN).sum(0)
        counts[number] += len(among_bHNN)

    each_attention(model, images_BCHW, add)
    for layer, count in zip(layers, counts, strict=True):
        if not count:
            raise VitinitError(f"attention {layer.name!r} is not called in a forward pass of {type(model).__name__}")
    return AttentionStatistics(
        [maps_HNN / count for maps_HNN, count in zip(sums, counts, strict=True)],
        [entropy_H / count for entropy_H, count in zip(entropies_H, counts, strict=True)],
        grids,
    )


def mean_attention(model: nn.Module, images_BCHW: Tensor) -> Tensor:
    """Attention of all layers between patch tokens, mean over these images: layers x heads x N x N, float32.

    Of a model whose layers have the same heads and see all tokens. As the model computes it: where there is a class
    token, what the tokens give to it is missing from their rows.
    """
    tokens = math.prod(token_grid(model))
    sums_L: list[Any] = [0.0] * len(attention_layers(model))

    def add(number: int, _: AttentionLayer, attention_bHNN: Tensor) -> None:
        sums_L[number] += attention_bHNN[:, :, -tokens:, -tokens:].sum(0)

    each_attention(model, images_BCHW, add)
    return torch.stack(sums_L) / len(images_BCHW)


def distances(grid: tuple[int, int]) -> Tensor:
    """Euclidean distance between the tokens of a grid of (rows, columns), N x N, in tokens."""
    rows, columns = grid
    places_N2 = torch.cartesian_prod(torch.arange(rows), torch.arange(columns)).double()
    return torch.cdist(places_N2, places_N2, compute_mode="donot_use_mm_for_euclid_dist")


def nonlocality(maps_HNN: Tensor, grid: tuple[int, int]) -> Tensor:
    """Sum over i, j of `A_ij |i - j| / N`, H, in tokens (d'Ascoli et al., arXiv 2103.10697, equation 8)."""
    return (maps_HNN * distances(grid).to(maps_HNN)).sum((-2, -1)) / maps_HNN.shape[-1]


@torch.no_grad()
def starts(model: nn.Module, images_BCHW: Tensor | None) -> list[LayerStart]:
    """Spectra of the attention weights of every layer and, where images are given, entropy and distance on them."""
    found = None if images_BCHW is None else measured(model, images_BCHW)
    entries = []
    for number, layer in enumerate(attention_layers(model)):
        value_HdD = layer.value_DD.unflatten(0, (layer.heads, -1))
        proj_HDd = layer.proj_DD.unflatten(1, (layer.heads, -1)).transpose(0, 1)
        query_key = spectra(layer.query_HdD.mT, layer.key_HdD.mT)
        value_path = spectra(proj_HDd, value_HdD.mT)
        entropy = distance = None
        if found:
            entropy = rounded(found.entropy[number])
            distance = rounded(nonlocality(found.maps[number], found.grids[number]))
        entries.append(
            LayerStart(layer=layer.name, query_key=query_key, value_path=value_path, entropy=entropy, distance=distance)
        )
    return entries


def spectra(left_HDd: Tensor, right_HDd: Tensor) -> Spectra:
    """Compute the spectra of the products left right^T, one a head, by singular values of d x d matrices.

    A singular value counts as zero below D eps times the largest, eps that of the type of the weights.
    """
    with one_thread():
        triangles = (torch.linalg.qr(part.detach().cpu().double(), mode="r").R for part in (left_HDd, right_HDd))
        left_Hdd, right_Hdd = triangles
        values_Hd = torch.linalg.svdvals(left_Hdd @ right_Hdd.mT)
    eps = left_HDd.shape[1] * torch.finfo(left_HDd.dtype).eps
    rank_H = (values_Hd > eps * values_Hd[:, :1]).sum(1)
    last_H = values_Hd.gather(1, (rank_H - 1).clamp(min=0)[:, None])[:, 0]
    condition_H = torch.where(rank_H > 0, values_Hd[:, 0] / last_H, torch.nan)
    return Spectra(norm=rounded(values_Hd.norm(dim=1)), rank=rank_H.tolist(), condition=rounded(condition_H))


def rounded(values: Any) -> Any:
    """Nested lists of numbers, or of tensors, with six significant digits: more would be noise, and fill the record.

    None stands for what is not finite, which JSON does not have.
    """
    if isinstance(values, Tensor):
        values = values.tolist()
    if isinstance(values, list):
        return [rounded(one) for one in values]
    return float(f"{values:.6g}") if math.isfinite(values) else None
