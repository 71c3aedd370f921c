"""Mixup, cutmix and random erasing, with timm's draws and timm's arithmetic.

The draws are those that timm makes from the global generators, made from named streams instead: `numpy.random` for
mixup and cutmix, `random` for the rectangles of erasing, torch on the CPU for their noise. So they are the same on
every device, for every number of processes, and wherever a run was resumed.
"""

import math
import random
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from vitinit.benchmark.augmentations.operations.image_operations import sent
from vitinit.benchmark.spec import Recipe
from vitinit.initializers.streams import derive, stream

ERASED_AREA = 0.02, 1 / 3
"""Least and largest share of an image that is erased; with the next two, timm's defaults."""
ERASED_RATIO = 0.3, 1 / 0.3
"""Least and largest height over width."""


def mix(
    images_BCHW: Tensor, labels_B: Tensor, recipe: Recipe, classes: int, seed: int, epoch: int, first: int
) -> tuple[Tensor, Tensor]:
    """Mixup or cutmix among every `recipe.mix_unit` neighbours, as timm's mode `batch` does in each process's batch.

    One lambda and one choice between mixup and cutmix for each such chunk; an image's partner is the one at the
    mirrored place in the chunk. Pixels are rounded to whole levels, as in timm's collate function.

    Args:
        images_BCHW: uint8, whole chunks.
        labels_B: int64.
        recipe: says how.
        classes: how many there are.
        seed: of the run.
        epoch: counted from 0.
        first: place of the first image in the order of the epoch; a multiple of `recipe.mix_unit`.

    Returns:
        The images, and their labels as shares of classes, float32, B x classes. They are not smoothed yet: smoothing is
        linear, so the loss does it.
    """
    size, unit = images_BCHW.shape[-1], recipe.mix_unit
    targets_BK = F.one_hot(labels_B, classes).float()
    images, targets = [], []
    for start in range(0, len(labels_B), unit):
        draws = np.random.RandomState(derive(seed, "mix", epoch, (first + start) // unit) % 2**32)
        draws.rand()  # timm's probability of mixing at all, which is 1
        cut = draws.rand() < 0.5 if recipe.mixup and recipe.cutmix else bool(recipe.cutmix)
        chunk, shares = images_BCHW[start : start + unit], targets_BK[start : start + unit]
        if cut:  # the partner fills a box
            side = int(size * np.sqrt(1 - draws.beta(recipe.cutmix, recipe.cutmix)))
            y, x = draws.randint(0, size), draws.randint(0, size)
            corners = y - side // 2, y + (side + 1) // 2, x - side // 2, x + (side + 1) // 2
            top, bottom, left, right = (min(max(at, 0), size) for at in corners)
            lam = 1.0 - (bottom - top) * (right - left) / size**2
            chunk, partners = chunk.clone(), chunk.flip(0)
            chunk[:, :, top:bottom, left:right] = partners[:, :, top:bottom, left:right]
        else:
            lam = draws.beta(recipe.mixup, recipe.mixup)
            chunk = (chunk.float() * lam + chunk.flip(0).float() * (1 - lam)).round().to(torch.uint8)
        images.append(chunk)
        targets.append(shares * lam + shares.flip(0) * (1.0 - lam))
    return torch.cat(images), torch.cat(targets)


def erase(images_BCHW: Tensor, recipe: Recipe, seed: int, epoch: int, step: int, part: slice = slice(None)) -> Tensor:
    """Random erasing: a rectangle of an image becomes noise N(0, 1), each pixel of its own.

    Rectangles and noise are drawn for the whole batch, one after the other, in main memory.

    Args:
        images_BCHW: float32, normalised; changed in place.
        recipe: says how often, and how large the batch is.
        seed: of the run.
        epoch: counted from 0.
        step: of the epoch, counted from 0.
        part: which part of the batch the images are.

    Returns:
        The images.
    """
    draws, noise = random.Random(derive(seed, "erase", epoch, step)), stream(seed, "erase noise", epoch, step)
    places, (channels, height, width) = range(recipe.batch_size), images_BCHW.shape[1:]
    erased, pixels = [], [torch.empty(0)]
    for place in places:
        if draws.random() > recipe.random_erasing:
            continue
        for rows, columns in random_sides(draws, height * width, ERASED_AREA, ERASED_RATIO):
            if rows < height and columns < width:
                top, left = draws.randint(0, height - rows), draws.randint(0, width - columns)
                drawn = torch.randn((channels, rows, columns), generator=noise)
                if place in places[part]:
                    erased.append(images_BCHW[place - places[part].start, :, top : top + rows, left : left + columns])
                    pixels.append(drawn.flatten())
                break
    values_X = sent(torch.cat(pixels), images_BCHW.device)
    for rectangle, values in zip(erased, values_X.split([rectangle.numel() for rectangle in erased]), strict=True):
        rectangle.copy_(values.view_as(rectangle))
    return images_BCHW


def random_sides(
    draws: random.Random, pixels: int, scale: tuple[float, float], ratio: tuple[float, float]
) -> Iterator[tuple[int, int]]:
    """Ten attempts at the sides of a rectangle of random area and shape, with the draws that timm makes.

    Args:
        draws: where they come from.
        pixels: area of the image.
        scale: least and largest share of it.
        ratio: least and largest of the first side over the second.
    """
    for _ in range(10):
        area = draws.uniform(*scale) * pixels
        shape = math.exp(draws.uniform(math.log(ratio[0]), math.log(ratio[1])))
        yield round(math.sqrt(area * shape)), round(math.sqrt(area / shape))
