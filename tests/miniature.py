"""Two real photographs, and pieces of them."""

import numpy as np
from PIL import Image


def real_photographs():
    """The two that scikit-learn brings."""
    from sklearn.datasets import load_sample_images

    return [Image.fromarray(array) for array in load_sample_images().images]


def pieces(count):
    """Cut pieces of the photographs, coarse and fine; uint8, N x 3 x 32 x 32."""
    import torch

    found = []
    for picture in real_photographs():
        for side in (64, 128, 256):
            for left in range(0, picture.width - side, side // 2):
                for top in range(0, picture.height - side, side // 2):
                    piece = picture.crop((left, top, left + side, top + side)).resize((32, 32))
                    found.append(np.asarray(piece).transpose(2, 0, 1))
    return torch.from_numpy(np.stack(found)[np.random.RandomState(0).permutation(len(found))[:count]])
