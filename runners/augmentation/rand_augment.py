"""RandAugment of a whole batch on its device: timm's draws and timm's pixels, bit for bit.

What is done to each image is drawn by timm's own code, image by image. It is carried out for all images at once that
have the same operation in the same layer.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from PIL import Image
from timm.data import auto_augment
from torch import Tensor

from vitinit.initializers.errors import VitinitError
from vitinit.runners.augmentation import image_operations as batched
from vitinit.runners.augmentation.image_operations import replace_
from vitinit.runners.basics.streams import reseed_python, seeded_python

POINTWISE: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "posterize": batched.posterize,
    "solarize": batched.solarize,
    "solarize_add": batched.solarize_add,
    "auto_contrast": batched.autocontrast,
    "equalize": batched.equalize,
}
ENHANCING = ("brightness", "contrast", "color", "sharpness")
SHIFTING = ("shift rows, linear", "shift columns, linear", "shift columns, cubic", "shift rows, cubic")
ROTATING = ("rotate, linear", "rotate, cubic")

KINDS = ("nothing", *POINTWISE, *ENHANCING, *SHIFTING, *ROTATING)
"""Operations on an image. Those that have much in common are carried out together. Inverting is solarizing."""

_PLACE = {kind: float(place) for place, kind in enumerate(KINDS)}

Numbers = tuple[float, float, float]
NOTHING: Numbers = (0.0, 0.0, 0.0)


def draw(config: str, image_size: int, images: int, seeds: Iterable[int]) -> np.ndarray:
    """Draw timm's changes to so many images one after the other, for each of the seeds of its global generators.

    Returns:
        For each image and layer three numbers, float64: the place in `KINDS` of what is done, and the number it takes;
        of a rotation, cosine and sine; of a shift, how much further each line is shifted than the one before it, and by
        how many pixels the edge is.

    Raises:
        VitinitError: timm refuses the configuration, or it has operations that we have not.
    """
    timm = recording(config, image_size)
    drawn = []
    with seeded_python(0):
        for seed in seeds:
            reseed_python(seed)
            drawn += [[timm.ops[number](NOTHING) for number in layers] for layers in _chosen(timm, images)]
    return np.array(drawn)


def _chosen(timm: auto_augment.RandAugment, images: int) -> list[list[int]]:
    """The places of the operations of each image."""
    count, layers, weights = len(timm.ops), timm.num_layers, timm.choice_weights
    if weights is None:  # the draws of timm's `choice` for all images, in one call
        return np.random.randint(0, count, (images, layers)).tolist()  # noqa: NPY002
    return [np.random.choice(count, layers, False, weights).tolist() for _ in range(images)]  # noqa: NPY002


def carry_out(images_BCHW: Tensor, drawn_BL3: np.ndarray, fill_C11: Tensor) -> Tensor:
    """New images, changed as drawn.

    Args:
        images_BCHW: uint8, B x 3 x S x S.
        drawn_BL3: for each image and layer what `draw` gives.
        fill_C11: uint8, on the device of the images: the colour of what comes from outside an image.
    """
    images_BCHW = images_BCHW.clone(memory_format=torch.contiguous_format)
    for drawn_B3 in drawn_BL3.swapaxes(0, 1):
        kinds_B = drawn_B3[:, 0].astype(int)
        nothing, *counts = np.bincount(kinds_B, minlength=len(KINDS)).tolist()
        if not sum(counts):
            continue
        places_N = kinds_B.argsort(kind="stable")[nothing:]
        table_N3 = torch.from_numpy(np.column_stack([places_N, drawn_B3[places_N, 1:]]))
        table_N3 = table_N3.to(images_BCHW.device, non_blocking=True)
        places, numbers_N2 = table_N3[:, 0].long(), table_N3[:, 1:]
        replace_(images_BCHW, places, _changed(images_BCHW.index_select(0, places), numbers_N2, counts, fill_C11))
    return images_BCHW


def _changed(images_NCHW: Tensor, numbers_N2: Tensor, counts: Sequence[int], fill_C11: Tensor) -> Tensor:
    """Apply the changes of one layer to images sorted by kind; `counts` has the number of each kind."""
    count_of = dict(zip(KINDS[1:], counts, strict=True))
    done, first = [], 0

    def taken(*kinds: str) -> tuple[Tensor, Tensor, list[int]]:
        nonlocal first
        part = slice(first, first := first + sum(count_of[kind] for kind in kinds))
        return images_NCHW[part], numbers_N2[part], [count_of[kind] for kind in kinds]

    for kind, change in POINTWISE.items():
        if count_of[kind]:
            images, numbers, _ = taken(kind)
            done.append(change(images, numbers[:, 0]))
    images, numbers, each = taken(*ENHANCING)
    if len(images):
        done.append(batched.enhance(images, numbers[:, 0], each))
    images, numbers, each = taken(*SHIFTING)
    if len(images):
        columns = images[each[0] : len(images) - each[3]]
        columns.copy_(columns.mT.contiguous())
        shifted = batched.shift_rows(images, numbers, [each[0] + each[1], each[2] + each[3]], fill_C11)
        columns = shifted[each[0] : len(images) - each[3]]
        columns.copy_(columns.mT.contiguous())
        done.append(shifted)
    images, numbers, each = taken(*ROTATING)
    if len(images):
        done.append(batched.rotate(images, numbers, each, fill_C11))
    return torch.cat(done)


def fill_color(mean: Sequence[float]) -> Tensor:
    """Return timm's fill colour: the mean of each channel (in 0..1), uint8, C x 1 x 1."""
    return torch.tensor([min(255, round(255 * channel)) for channel in mean], dtype=torch.uint8)[:, None, None]


@cache
def recording(config: str, image_size: int) -> auto_augment.RandAugment:
    """Replace timm's operations by recorders: each returns the `Change` that it would carry out.

    Raises:
        VitinitError: timm refuses the configuration, or it has operations that we have not.
    """
    try:
        transform = auto_augment.rand_augment_transform(config)
    except Exception as error:  # timm checks with bare asserts
        raise VitinitError(f"recipe field rand_augment: timm refuses {config!r}: {error}") from error
    for op in transform.ops:
        name = op.aug_fn.__name__
        if name not in RECORDERS:
            known = ", ".join(RECORDERS)
            raise VitinitError(
                f"recipe field rand_augment: {config!r} asks for timm's {name}, which is not among: {known}"
            )
        op.aug_fn = partial(RECORDERS[name], name, image_size)
    return transform


def _in_place(name: str, _size: int, _: Numbers, number: float = 0.0, **__: Any) -> Numbers:
    if name == "invert":
        return _PLACE["solarize"], 0.0, 0.0
    return _PLACE[name], number, 0.0


def _rotation(_name: str, _size: int, _: Numbers, degrees: float, *, resample: Any, **__: Any) -> Numbers:
    angle = -math.radians(degrees % 360)  # rounded as by Pillow
    return _PLACE[f"rotate, {_drawn_way(resample)}"], round(math.cos(angle), 15), round(math.sin(angle), 15)


def _shear(name: str, _size: int, _: Numbers, factor: float, *, resample: Any, **__: Any) -> Numbers:
    return _PLACE[f"shift {_lines(name)}, {_drawn_way(resample)}"], factor, 0.0


def _translation(name: str, size: int, _: Numbers, share: float, *, resample: Any, **__: Any) -> Numbers:
    return _PLACE[f"shift {_lines(name)}, {_drawn_way(resample)}"], 0.0, share * size


def _lines(name: str) -> str:
    return "rows" if "_x" in name else "columns"


def _drawn_way(resample: Sequence[Image.Resampling]) -> str:
    return "cubic" if random.choice(resample) == Image.Resampling.BICUBIC else "linear"


RECORDERS: dict[str, Callable[..., Numbers]] = {
    **dict.fromkeys((*POINTWISE, *ENHANCING, "invert"), _in_place),
    **dict.fromkeys(("shear_x", "shear_y"), _shear),
    **dict.fromkeys(("translate_x_rel", "translate_y_rel"), _translation),
    "rotate": _rotation,
}
"""Replacements of timm's functions: each draws as timm's does, and returns what `draw` returns."""
