"""Masks go with their images through what moves pixels: as one more channel."""

from __future__ import annotations

import torch
from torch import Tensor


def joined(images_BCHW: Tensor, masks_BHW: Tensor) -> Tensor:
    """Images with their masks as the last channel, uint8.

    Classes are counted from 1 in it, and `IGNORED`, 255, is 0: a byte goes round. So zeros around an image are ignored.
    """
    return torch.cat([images_BCHW, (masks_BHW + 1)[:, None]], dim=1)


def parted(joined_BCHW: Tensor) -> tuple[Tensor, Tensor]:
    """The images and the masks again."""
    return joined_BCHW[:, :-1], joined_BCHW[:, -1] - 1
