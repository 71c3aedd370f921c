"""Batches from images on the disk: each is read, decoded, cropped and flipped in a thread when its turn comes near.

Crop, flip and what follows of an image are drawn from streams at (epoch, number of the image), so they do not depend on
the number of threads or processes, or on where a run was resumed. Mixing and erasing are those of every loader.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import partial
from typing import ClassVar

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor
from torchvision.transforms import InterpolationMode
from torchvision.transforms import functional as TF

from vitinit.benchmark.augmentations.registry import Augmentation
from vitinit.benchmark.spec import Recipe
from vitinit.initializers.streams import derive
from vitinit.runners.augmentation.mixing import random_sides
from vitinit.runners.loaders.base import Loader, SplitName, carried_out

TRAINING_INTERPOLATION = (InterpolationMode.BILINEAR, InterpolationMode.BICUBIC)
"""One of them is drawn for each random resized crop, as timm does by default."""


class FullSizeLoader(Loader):
    """A loader of images that are decoded when they are needed, in as many threads as torch may use."""

    name: ClassVar[str] = "full-size"

    def read(self, split: SplitName, batches: Sequence[Tensor], epoch: int | None = None) -> Iterator[Tensor]:
        """Images by their numbers, uint8, B x 3 x S x S, decoded a batch ahead; of an epoch, cropped and flipped."""
        images_of, size = getattr(self.data, split), self.image_size

        def decoded(number: int) -> np.ndarray:
            image = images_of.image(number)
            if epoch is None:
                return np.asarray(central_crop(image, size, self.recipe.crop_pct))
            draws = random.Random(derive(self.seed, "augment", epoch, number))
            return np.asarray(crop_and_flip(image, size, self.recipe, draws))

        jobs = (partial(decoded, number) for numbers in batches for number in numbers.tolist())
        ahead = 2 * max(map(len, batches), default=0)
        with closing(carried_out(jobs, torch.get_num_threads(), ahead, beside=True)) as images:
            for numbers in batches:
                batch = torch.empty((len(numbers), 3, size, size), dtype=torch.uint8, pin_memory=self.pins)
                for place, image in zip(batch.numpy(), images, strict=False):
                    place[:] = image.transpose(2, 0, 1)
                yield batch

    def crop_and_flip(self, images_BCHW: Tensor, epoch: int, step: int) -> Tensor:
        """Nothing: this was done when they were decoded."""
        return images_BCHW

    def drawn(self, stream: str, augmentation: Augmentation, numbers_B: Tensor, epoch: int, step: int) -> np.ndarray:
        """Draw the changes of an augmentation for these images. Draws are of images."""
        seeds = [derive(self.seed, stream, epoch, number) for number in numbers_B.tolist()]
        return np.concatenate([augmentation.draw(1, self.image_size, seed) for seed in seeds])


def crop_and_flip(image: Image.Image, size: int, recipe: Recipe, draws: random.Random) -> Image.Image:
    """The first part of the augmentation of one training image: size x size of it, mirrored or not.

    A random resized crop is of random area and shape, with the draws that timm makes.
    """
    if recipe.crop_scale:
        box = _crop_box(image, recipe.crop_scale, recipe.crop_ratio, draws)
        image = TF.resized_crop(image, *box, [size, size], draws.choice(TRAINING_INTERPOLATION))
    else:
        image = central_crop(image, size, recipe.crop_pct)
    return ImageOps.mirror(image) if draws.random() < recipe.hflip else image


def central_crop(image: Image.Image, size: int, crop_pct: float) -> Image.Image:
    """The test transform of timm: shorter side to size / crop_pct (bicubic), then the central size x size pixels."""
    return TF.center_crop(TF.resize(image, math.floor(size / crop_pct), InterpolationMode.BICUBIC), size)


def _crop_box(
    image: Image.Image, scale: tuple[float, float], ratio: tuple[float, float], draws: random.Random
) -> tuple[int, int, int, int]:
    """Top, left, rows and columns; the largest central part of an allowed shape where ten attempts do not fit."""
    width, height = image.size
    for columns, rows in random_sides(draws, width * height, scale, ratio):
        if columns <= width and rows <= height:
            return draws.randint(0, height - rows), draws.randint(0, width - columns), rows, columns
    columns = min(width, round(height * ratio[1]))
    rows = min(height, round(width / ratio[0]))
    return (height - rows) // 2, (width - columns) // 2, rows, columns
