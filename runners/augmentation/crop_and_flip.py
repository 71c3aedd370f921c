"""Random crop and horizontal flip of a batch, and masks that go with their images as one more channel."""

from __future__ import annotations

import torch
from torch import Tensor

from vitinit.benchmark.augmentations.operations.image_operations import crop, replace_, sent
from vitinit.benchmark.spec import Recipe


def crop_and_flip(images_BCHW: Tensor, recipe: Recipe, generator: torch.Generator, part: slice = slice(None)) -> Tensor:
    """The training images of one step, cropped and flipped on their device as the recipe says.

    Args:
        images_BCHW: uint8, a part of the batch.
        recipe: says whether, and how large the batch is.
        generator: on the CPU; what is drawn from it is for the whole batch.
        part: which part of the batch the images are.
    """
    device = images_BCHW.device
    if recipe.crop_padding:
        offsets_2B = torch.randint(2 * recipe.crop_padding + 1, (2, recipe.batch_size), generator=generator)
        images_BCHW = crop(images_BCHW, recipe.crop_padding, *sent(offsets_2B[:, part], device))
    if recipe.hflip:
        flipped_B = torch.rand(recipe.batch_size, generator=generator) < recipe.hflip
        places = sent(flipped_B[part].nonzero()[:, 0], device)
        flipped_NCHW = images_BCHW.index_select(0, places).flip(-1)
        images_BCHW = images_BCHW.clone(memory_format=torch.contiguous_format)
        replace_(images_BCHW, places, flipped_NCHW)
    return images_BCHW


def joined(images_BCHW: Tensor, masks_BHW: Tensor) -> Tensor:
    """Images with their masks as the last channel, uint8.

    Classes are counted from 1 in it, and `IGNORED`, 255, is 0: a byte goes round. So zeros around an image are ignored.
    """
    return torch.cat([images_BCHW, (masks_BHW + 1)[:, None]], dim=1)


def parted(joined_BCHW: Tensor) -> tuple[Tensor, Tensor]:
    """The images and the masks again."""
    return joined_BCHW[:, :-1], joined_BCHW[:, -1] - 1
