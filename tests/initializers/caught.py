"""Attention maps as models themselves compute them: every softmax over tokens, caught on its way."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


@contextmanager
def caught() -> Iterator[list[Tensor]]:
    """What is B x H x N x N and comes out of a softmax meanwhile, in the order in which it is computed."""
    maps: list[Tensor] = []
    softmax, fused = Tensor.softmax, F.scaled_dot_product_attention

    def seen(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        found = softmax(self, *args, **kwargs)
        if found.ndim == 4 and found.shape[-1] == found.shape[-2]:
            maps.append(found.detach())
        return found

    def plain(query: Tensor, key: Tensor, value: Tensor, attn_mask: Any = None, *_: Any, **__: Any) -> Tensor:
        logits = query @ key.mT * query.shape[-1] ** -0.5
        return (logits if attn_mask is None else logits + attn_mask).softmax(-1) @ value

    Tensor.softmax, F.scaled_dot_product_attention = seen, plain  # type: ignore[method-assign,assignment]
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)  # which has no softmax that could be seen
    try:
        yield maps
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
        Tensor.softmax, F.scaled_dot_product_attention = softmax, fused  # type: ignore[method-assign,assignment]


@torch.no_grad()
def maps_of(model: nn.Module, images_BCHW: Tensor) -> list[Tensor]:
    """The maps of a forward pass."""
    with caught() as maps:
        model(images_BCHW)
    return maps


@torch.no_grad()
def without_images(model: nn.Module) -> nn.Module:
    """The model with a patch embedding that gives zero, so that tokens are their positions alone."""
    first = next(module for module in model.modules() if isinstance(module, nn.Conv2d | nn.Linear))
    first.weight.zero_()
    first.bias.zero_()
    return model
