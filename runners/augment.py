"""Augmentation of a batch of uint8 images: random crop, horizontal flip, RandAugment, in timm's order."""

from __future__ import annotations

import copy
import random
import re
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageOps
from timm.data.auto_augment import RandAugment, rand_augment_transform
from torch import Tensor
from torch.nn import functional as F

from benchmark.spec import Recipe
from runners.streams import derive, seeded_python, stream

Change = Callable[[Image.Image], Image.Image]

_GEOMETRIC = re.compile(r"(shear|translate)_[xy](_rel|_abs)?|rotate")
"""timm's operations that choose between bilinear and bicubic when they are called; the others draw nothing then."""


def augment(images_BCHW: Tensor, recipe: Recipe, mean: tuple[float, ...], seed: int, epoch: int, step: int) -> Tensor:
    """The training images of one step, uint8 in and out.

    Args:
        images_BCHW: uint8, on the CPU.
        recipe: says which augmentations, and how strong.
        mean: channel means in 0..1; RandAugment fills with them, as timm does.
        seed: of the run.
        epoch: counted from 0; with `step` the position in the stream.
        step: optimiser step within the epoch.
    """
    generator = stream(seed, "augment", epoch, step)
    if recipe.crop_padding:
        images_BCHW = random_crop(images_BCHW, recipe.crop_padding, generator)
    if recipe.hflip:
        flip_B = torch.rand(len(images_BCHW), generator=generator) < recipe.hflip
        images_BCHW = torch.where(flip_B[:, None, None, None], images_BCHW.flip(-1), images_BCHW)
    if recipe.rand_augment:
        transform = rand_augment(recipe.rand_augment, images_BCHW.shape[-1], mean)
        with seeded_python(derive(seed, "randaugment", epoch, step)):
            pictures = [transform(Image.fromarray(a)) for a in images_BCHW.permute(0, 2, 3, 1).numpy()]
        images_BCHW = torch.from_numpy(np.stack([np.asarray(p) for p in pictures])).permute(0, 3, 1, 2)
    return images_BCHW


def random_crop(images_BCHW: Tensor, padding: int, generator: torch.Generator) -> Tensor:
    """Zero-pad by `padding` pixels, then cut the original size out at an offset drawn per image."""
    batch, _, height, width = images_BCHW.shape
    top_B, left_B = torch.randint(2 * padding + 1, (2, batch), generator=generator)
    padded = F.pad(images_BCHW, (padding,) * 4)
    rows_BH = top_B[:, None] + torch.arange(height)
    columns_BW = left_B[:, None] + torch.arange(width)
    each_B = torch.arange(batch)[:, None, None]
    return padded[each_B, :, rows_BH[:, :, None], columns_BW[:, None, :]].permute(0, 3, 1, 2).contiguous()


@cache
def rand_augment(config: str, image_size: int, mean: tuple[float, ...]) -> RandAugment:
    """Timm's RandAugment with the parameters that timm's own pipeline derives from image size and mean."""
    transform = rand_augment_transform(
        config,
        {
            "translate_const": int(image_size * 0.45),
            "img_mean": tuple(min(255, round(255 * channel)) for channel in mean),
        },
    )
    for op in transform.ops:
        if op.name.startswith("Posterize"):
            op.aug_fn = posterize
    return transform


def posterize(image: Image.Image, bits: int, **_: object) -> Image.Image:
    """Keep the highest `bits` bits of each pixel. Pillow refuses 0 bits, which magnitude noise does reach: black."""
    if bits >= 8:
        return image
    return ImageOps.posterize(image, bits) if bits > 0 else Image.new(image.mode, image.size)


def rand_augment_plan(config: str, image_size: int, mean: tuple[float, ...]) -> tuple[Change, ...]:
    """What RandAugment does to one image, drawn now and carried out later: only drawing reads the global generators.

    To be called within `seeded_python`, in one thread; the changes may be carried out in any. The draws and the pixels
    are those of timm's transform.
    """
    plan: tuple[Change, ...] = _recording(config, image_size, mean)(())
    return plan


@cache
def _recording(config: str, image_size: int, mean: tuple[float, ...]) -> RandAugment:
    """What timm does, less the work: in place of an image it takes and gives the changes so far."""
    transform = copy.deepcopy(rand_augment(config, image_size, mean))
    for op in transform.ops:
        op.aug_fn = partial(_record, op.aug_fn)
    return transform


def _record(change: Callable[..., Image.Image], plan: tuple[Change, ...], *level: Any, **options: Any) -> Any:
    if _GEOMETRIC.fullmatch(change.__name__) and isinstance(options.get("resample"), tuple):
        options["resample"] = random.choice(options["resample"])
    return (*plan, lambda image: change(image, *level, **options))
