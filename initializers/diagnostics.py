"""Measurements of a model's attention: distance and entropy.

Measuring changes nothing and draws no random number.
"""

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from vitinit.initializers.adapter import TokenGrid
from vitinit.initializers.attention import AT_ONCE, attention_layers, evaluated, seen_grids
from vitinit.initializers.errors import VitinitError
from vitinit.initializers.targets import token_positions


@torch.no_grad()
def attention_input(model: nn.Module, images_BCHW: Tensor, layer: int = 0, alone: bool = False) -> Tensor:
    """Return the input of an attention layer (default: the first): B images or windows x N x D, no class token.

    Raises:
        VitinitError: the layer must have its tokens `alone`, and is given more (rotations, position biases, a mask).
    """
    seen: list[Tensor] = []
    attends = attention_layers(model)[layer]

    def see(_: Any, inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
        seen.append(attends.tokens(inputs, named))
        first, *others = (value for value in (*inputs, *named.values()) if isinstance(value, Tensor))
        if alone and any(other is not first for other in others):
            raise VitinitError(f"attention {attends.name!r} is given more than its tokens")

    with evaluated(model, [attends.module.register_forward_pre_hook(see, with_kwargs=True)]):
        model(images_BCHW)
    return seen[0][:, -math.prod(seen_grids(model)[layer]) :]


@dataclass(frozen=True)
class AttentionStatistics:
    """Attention statistics of each layer, between patch tokens, mean over images and windows."""

    maps: list[Tensor]
    """H x N x N; rows add up to 1."""
    entropy: list[Tensor]
    """H, in nats; of a query in one image."""
    grids: list[TokenGrid]
    """Rows and columns of the N tokens: the token grid, or a window."""


def between_tokens(attention_BHNN: Tensor, tokens: int, whole_rows: bool = True) -> Tensor:
    """Attention between the patch tokens, which come last.

    Where there is a class token it is left out, and rows are divided by what remains of them: softmax over the others.
    Without `whole_rows` they stay as the model computes them.
    """
    seen = attention_BHNN.shape[-1]
    if seen < tokens:
        raise VitinitError(
            f"attention is among {seen} tokens, and there are {tokens} places: the model leaves some out, or the "
            "images are smaller than those that it is made for"
        )
    if seen == tokens:
        return attention_BHNN
    among_BHNN = attention_BHNN[:, :, -tokens:, -tokens:]
    return among_BHNN / among_BHNN.sum(-1, keepdim=True) if whole_rows else among_BHNN


def entropies(attention_BHNN: Tensor) -> Tensor:
    """Entropy in nats, mean over the queries: B x H."""
    return torch.special.entr(attention_BHNN).sum(-1).mean(-1)


@torch.no_grad()
def measured(model: nn.Module, images_BCHW: Tensor, whole_rows: bool = True) -> AttentionStatistics:
    """Attention on real activations: what each layer receives when the model sees the images.

    Args:
        model: with attention.
        images_BCHW: on its device.
        whole_rows: of `between_tokens`.

    Raises:
        VitinitError: a layer is not called.
    """
    grids, layers = seen_grids(model), attention_layers(model)
    sums: list[Any] = [0.0] * len(layers)
    entropies_H, counts = [*sums], [0] * len(layers)

    def see(number: int, _: Any, inputs: Any, named: Any) -> None:
        among_bHNN = between_tokens(layers[number].attention(*inputs, **named), math.prod(grids[number]), whole_rows)
        sums[number] += among_bHNN.sum(0)
        entropies_H[number] += entropies(among_bHNN).sum(0)
        counts[number] += len(among_bHNN)

    hooks = [
        layer.module.register_forward_pre_hook(partial(see, number), with_kwargs=True)
        for number, layer in enumerate(layers)
    ]
    with evaluated(model, hooks):
        for few_BCHW in images_BCHW.split(AT_ONCE):
            model(few_BCHW)
    for layer, count in zip(layers, counts, strict=True):
        if not count:
            raise VitinitError(f"attention {layer.name!r} is not called in a forward pass of {type(model).__name__}")
    return AttentionStatistics(
        [maps_HNN / count for maps_HNN, count in zip(sums, counts, strict=True)],
        [entropy_H / count for entropy_H, count in zip(entropies_H, counts, strict=True)],
        grids,
    )


def distances(grid: TokenGrid) -> Tensor:
    """Euclidean distance between the tokens of a grid of (rows, columns), N x N, in tokens."""
    places_N2 = token_positions(grid)
    return torch.cdist(places_N2, places_N2, compute_mode="donot_use_mm_for_euclid_dist")


def nonlocality(maps_HNN: Tensor, grid: TokenGrid) -> Tensor:
    """Sum over i, j of `A_ij |i - j| / N`, H, in tokens (d'Ascoli et al., arXiv 2103.10697, equation 8)."""
    return (maps_HNN * distances(grid).to(maps_HNN)).sum((-2, -1)) / maps_HNN.shape[-1]


def rounded(values: Any) -> Any:
    """Nested lists of numbers, or of tensors, with six significant digits: more would be noise, and fill the record.

    None stands for what is not finite, which JSON does not have.
    """
    if isinstance(values, Tensor):
        values = values.tolist()
    if isinstance(values, list):
        return [rounded(value) for value in values]
    return float(f"{values:.6g}") if math.isfinite(values) else None
