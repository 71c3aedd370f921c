"""Effective receptive field: distance of the pixels that the central token depends on."""

from typing import Any

import torch
from torch import Tensor

from vitinit.initializers.attention import evaluated
from vitinit.runners.probes.registry import Seen, blocks_of, patch_tokens, probe

RECEPTIVE_FIELD_IMAGES = 4
"""As many of the probe's images as gradients are taken of."""


@probe
def effective_receptive_field(seen: Seen) -> Tensor:
    """Radius of the effective receptive field of each block, L, in patches.

    The absolute gradient of the central token's output with respect to the pixels, mean over images and channels (Luo
    et al., NeurIPS 2016, arXiv 1701.04128), added up patch by patch: the distance from the central token that its mean,
    weighted by this, has. The output's features are added up with alternating signs, less their mean: a plain sum is
    what every LayerNorm that reads the token takes away. Where the model ends in a class token, nothing reads the patch
    tokens of the last block.
    """
    model, (rows, columns) = seen.model, seen.grid
    outputs: list[Any] = []
    hooks = [block.register_forward_hook(lambda _, __, output: outputs.append(output)) for block in blocks_of(model)]
    pixels_BCHW = seen.images_BCHW[:RECEPTIVE_FIELD_IMAGES].detach().clone().requires_grad_()
    with evaluated(model, hooks), torch.enable_grad():
        model(pixels_BCHW)
    radii = []
    for output in outputs:
        tokens_BND, (high, wide) = patch_tokens(output, seen.grid)
        signs_D = 1 - 2.0 * (torch.arange(tokens_BND.shape[-1], device=tokens_BND.device) % 2)
        summed = (tokens_BND[:, high // 2 * wide + wide // 2] @ (signs_D - signs_D.mean())).sum()
        (gradient_BCHW,) = torch.autograd.grad(summed, pixels_BCHW, retain_graph=True)
        gradients = gradient_BCHW.abs().mean((0, 1)).unflatten(1, (columns, -1)).unflatten(0, (rows, -1))
        per_patch_N = gradients.sum((1, 3)).flatten()
        # from the middle of the central token, which may be several patches wide
        places = [
            torch.arange(patches).double() - (tokens // 2 + 0.5) * patches / tokens + 0.5
            for patches, tokens in ((rows, high), (columns, wide))
        ]
        distance_N = torch.cartesian_prod(*places).norm(dim=1).to(pixels_BCHW)
        radii.append((per_patch_N * distance_N).sum() / per_patch_N.sum().clamp_min(torch.finfo(torch.float32).tiny))
    return torch.stack(radii)
