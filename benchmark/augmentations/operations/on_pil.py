"""Operations of Pillow and torchvision, image by image in main memory: for augmentations that are rarely used."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from PIL import Image
from torch import Tensor


def on_pil(images_BCHW: Tensor, drawn: np.ndarray, change: Callable[[Image.Image, np.ndarray], Image.Image]) -> Tensor:
    """New images, uint8, B x 3 x S x S, on their device: each is changed with its own numbers."""
    pixels_BHWC = images_BCHW.permute(0, 2, 3, 1).contiguous().cpu().numpy()
    changed = [np.asarray(change(Image.fromarray(image), its)) for image, its in zip(pixels_BHWC, drawn, strict=True)]
    return torch.from_numpy(np.stack(changed)).permute(0, 3, 1, 2).contiguous().to(images_BCHW.device)
