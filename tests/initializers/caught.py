"""Attention maps as models themselves compute them: every softmax over tokens, caught on its way."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from vitinit.initializers.measure import Softmaxes


@torch.no_grad()
def maps_of(model: nn.Module, images_BCHW: Tensor) -> list[Tensor]:
    """What is B x H x N x N and comes out of a softmax of a forward pass, in the order in which it is computed."""
    maps: list[Tensor] = []
    with Softmaxes(lambda _, attention, __: maps.append(attention)):
        model(images_BCHW)
    return [each for each in maps if each.ndim == 4 and each.shape[-1] == each.shape[-2]]


@torch.no_grad()
def without_images(model: nn.Module) -> nn.Module:
    """The model with a patch embedding that gives zero, so that tokens are their positions alone."""
    first = next(module for module in model.modules() if isinstance(module, nn.Conv2d | nn.Linear))
    first.weight.zero_()
    first.bias.zero_()
    return model
