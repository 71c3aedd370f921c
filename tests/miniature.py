"""Two real photographs: pieces of them, and a miniature of ImageNet-1K, its layout and its odd files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

CLASSES = 1000
NAMES = [f"n{number:08d}" for number in range(CLASSES)]


def real_photographs() -> list[Image.Image]:
    """The two that scikit-learn brings."""
    from sklearn.datasets import load_sample_images

    return [Image.fromarray(array) for array in load_sample_images().images]


def make_source(root: Path, names: Sequence[str] = NAMES) -> Path:
    """train/ with one image a class and a second one in every fourth, val/ with one; mostly small, to be quick."""
    photographs = real_photographs()
    random = np.random.default_rng(0)
    for split, extra in (("train", 4), ("val", CLASSES + 1)):
        for label, name in enumerate(names):
            (root / split / name).mkdir(parents=True)
            for number in range(1 + (label % extra == 0 and split == "train")):
                size = (300, 260) if label % 100 == 7 else tuple(int(side) for side in random.integers(40, 72, 2))
                photograph = photographs[label % 2]
                left, top = (
                    int(random.integers(0, room - side)) for room, side in zip(photograph.size, size, strict=True)
                )
                part = photograph.crop((left, top, left + size[0], top + size[1]))
                odd(part, label).save(root / split / name / f"{name}_{number}.JPEG", "PNG" if label == 3 else "JPEG")
    return root


def odd(image: Image.Image, label: int) -> Image.Image:
    """As in ImageNet, a few are not RGB: class 1 is CMYK, class 2 is grey, class 3 (a PNG) has a palette."""
    return image.convert({1: "CMYK", 2: "L", 3: "P"}.get(label, "RGB"))


def pieces(count: int) -> Any:
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
