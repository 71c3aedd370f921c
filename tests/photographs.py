"""Pieces of two photographs, for tests of augmentations."""

import numpy as np
import torch
from PIL import Image
from sklearn.datasets import load_sample_images


def pieces(count: int) -> torch.Tensor:
    """So many of them, coarse and fine; uint8, N x 3 x 32 x 32."""
    found = []
    for picture in map(Image.fromarray, load_sample_images().images):
        for side in (64, 128, 256):
            for left in range(0, picture.width - side, side // 2):
                for top in range(0, picture.height - side, side // 2):
                    piece = picture.crop((left, top, left + side, top + side)).resize((32, 32))
                    found.append(np.asarray(piece).transpose(2, 0, 1))
    return torch.from_numpy(np.stack(found)[np.random.RandomState(0).permutation(len(found))[:count]])
