"""Similarity of representations, from Gram matrices of the same images."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from vitinit.initializers.attention import evaluated, token_grid
from vitinit.runners.basics.machine import float64_device
from vitinit.runners.probes.blocks import blocks_of, patch_tokens


@torch.no_grad()
def grams(model: nn.Module, images_BCHW: Tensor, batch: int) -> Tensor:
    """Gram matrices of what each block puts out, layers x batches x batch x batch.

    An image's features are its patch tokens beside one another, minus their mean over the images of the batch. From
    these matrices `analysis.curves.cka` computes linear CKA between layers, epochs and runs.

    Args:
        model: with timm's blocks; evaluated, and left as it was.
        images_BCHW: on the model's device; what does not fill a batch is left out.
        batch: images compared with one another.
    """
    grid, blocks = token_grid(model), blocks_of(model)
    found: list[list[Tensor]] = [[] for _ in blocks]

    def keep(layer: int, output: Tensor) -> None:
        tokens_BND = patch_tokens(output, grid)[0]
        features_BF = tokens_BND.to(float64_device(tokens_BND.device)).flatten(1).double()
        centred_BF = features_BF - features_BF.mean(0)
        found[layer].append((centred_BF @ centred_BF.T).float().cpu())

    hooks = [
        block.register_forward_hook(lambda _, __, output, layer=layer: keep(layer, output))
        for layer, block in enumerate(blocks)
    ]
    with evaluated(model, hooks):
        for some_BCHW in images_BCHW[: len(images_BCHW) // batch * batch].split(batch):
            model(some_BCHW)
    return torch.stack([torch.stack(each) for each in found])
