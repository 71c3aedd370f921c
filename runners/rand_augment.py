"""RandAugment of a whole batch on its device: timm's draws and timm's pixels, bit for bit.

What is done to each image is drawn by timm's own code, image by image. It is carried out for all images at once that
have the same operation in the same layer.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image
from timm.data import auto_augment
from torch import Tensor

from initializers.errors import VitinitError
from runners import image_operations as batched
from runners.streams import seeded_python

IN_PLACE: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "auto_contrast": batched.autocontrast,
    "brightness": batched.brightness,
    "color": batched.color,
    "contrast": batched.contrast,
    "equalize": batched.equalize,
    "invert": batched.invert,
    "posterize": batched.posterize,
    "sharpness": batched.sharpness,
    "solarize": batched.solarize,
    "solarize_add": batched.solarize_add,
}
"""timm's functions that leave pixels where they are, by name."""

MOVING = {"rotate", "shear_x", "shear_y", "translate_x_abs", "translate_x_rel", "translate_y_abs", "translate_y_rel"}
"""timm's functions that move pixels: these choose between bilinear and bicubic when they are called."""


class Change(NamedTuple):
    """One operation with what timm has drawn for it.

    Attributes:
        operation: a key of `IN_PLACE`, or `rotate`, or `shift`, which is what shearing and translating are.
        cubic: whether an operation that moves pixels interpolates bicubically, or else bilinearly.
        sideways: whether columns are shifted, or else rows.
        first: the number that the operation takes; of a rotation the cosine; of a shift, how much further each line is
            shifted than the one before it.
        second: of a rotation the sine; of a shift, by how many pixels the edge of the image is shifted.
    """

    operation: str
    cubic: bool = False
    sideways: bool = False
    first: float = 0.0
    second: float = 0.0


Drawn = list[Change | None]
"""What is done to one image, layer by layer; None where a layer leaves it as it is."""


def draw(config: str, image_size: int, images: int, seed: int) -> list[Drawn]:
    """What timm does to so many images one after the other, with its global generators seeded.

    Raises:
        VitinitError: timm refuses the configuration, or it has operations that we have not.
    """
    timm = recording(config, image_size)
    with seeded_python(seed):
        if timm.choice_weights is None:  # the draws of timm's np.random.choice for all images, in one call
            chosen = np.random.randint(0, len(timm.ops), (images, timm.num_layers)).tolist()  # noqa: NPY002
        else:
            choose = partial(np.random.choice, len(timm.ops), timm.num_layers, False, timm.choice_weights)  # noqa: NPY002
            chosen = [choose() for _ in range(images)]
        return [[timm.ops[number](None) for number in layers] for layers in chosen]


def carry_out(images_BCHW: Tensor, drawn: Sequence[Drawn], fill_C11: Tensor) -> Tensor:
    """The images, changed as drawn.

    Args:
        images_BCHW: uint8, B x 3 x S x S.
        drawn: one for each image.
        fill_C11: uint8, on the device of the images: the colour of what comes from outside an image.
    """
    for changes in zip(*drawn, strict=True):
        alike: dict[tuple[str, bool], list[tuple[bool, int, float, float]]] = {}
        for place, change in enumerate(changes):
            if change:
                row = (change.sideways, place, change.first, change.second)
                alike.setdefault((change.operation, change.cubic), []).append(row)
        rows = [row for group in alike.values() for row in sorted(group)]
        if not rows:
            continue
        table = torch.tensor(rows, dtype=torch.float64).to(images_BCHW.device, non_blocking=True)
        places, counts = table[:, 1].long(), [len(group) for group in alike.values()]
        parts = zip(alike.items(), images_BCHW.index_select(0, places).split(counts), table.split(counts), strict=True)
        changed = [
            _changed(part, *kind, sum(row[0] for row in group), numbers[:, 2:], fill_C11)
            for (kind, group), part, numbers in parts
        ]
        newest = np.arange(len(images_BCHW))
        newest[[row[1] for row in rows]] = np.arange(len(rows)) + len(images_BCHW)
        newest_B = torch.from_numpy(newest).to(images_BCHW.device, non_blocking=True)
        images_BCHW = torch.cat([images_BCHW, *changed]).index_select(0, newest_B)
    return images_BCHW


def fill_color(mean: Sequence[float]) -> Tensor:
    """What timm fills with: the mean of each channel (in 0..1), uint8, C x 1 x 1."""
    return torch.tensor([min(255, round(255 * channel)) for channel in mean], dtype=torch.uint8)[:, None, None]


def _changed(
    images_BCHW: Tensor, operation: str, cubic: bool, sideways: int, numbers_B2: Tensor, fill_C11: Tensor
) -> Tensor:
    """One operation. Of the last `sideways` images it is columns that are shifted."""
    if operation in IN_PLACE:
        return IN_PLACE[operation](images_BCHW, numbers_B2[:, 0])
    if operation == "rotate":
        return batched.rotate(images_BCHW, numbers_B2, cubic, fill_C11)
    parts = [len(images_BCHW) - sideways, sideways]
    rows, columns = images_BCHW.split(parts)
    centre_S = torch.arange(images_BCHW.shape[-1], device=images_BCHW.device) + 0.5
    shift_BS = numbers_B2[:, :1] * centre_S + numbers_B2[:, 1:]
    rows, columns = batched.shift_rows(torch.cat([rows, columns.mT]), shift_BS, cubic, fill_C11).split(parts)
    return torch.cat([rows, columns.mT])


@cache
def recording(config: str, image_size: int) -> auto_augment.RandAugment:
    """What timm does, less the work: an operation gives the `Change` that it would carry out.

    Raises:
        VitinitError: timm refuses the configuration, or it has operations that we have not.
    """
    try:
        # timm's own pipeline derives this from the image size
        transform = auto_augment.rand_augment_transform(config, {"translate_const": int(image_size * 0.45)})
    except Exception as error:  # timm checks with bare asserts
        raise VitinitError(f"recipe field rand_augment: timm refuses {config!r}: {error}") from error
    for op in transform.ops:
        name = op.aug_fn.__name__
        if name not in IN_PLACE and name not in MOVING:
            raise VitinitError(f"recipe field rand_augment: {config!r} takes timm's {op.name}, which is not supported")
        op.aug_fn = partial(_record, name, image_size)
    return transform


def _record(name: str, image_size: int, _: None, number: float = 0.0, *, resample: Any, fillcolor: object) -> Change:
    if name in IN_PLACE:
        return Change(name, first=number)
    cubic = random.choice(resample) == Image.Resampling.BICUBIC
    if name == "rotate":
        angle = -math.radians(number % 360)
        return Change(name, cubic, False, round(math.cos(angle), 15), round(math.sin(angle), 15))
    if name.startswith("shear"):
        return Change("shift", cubic, "_y" in name, number, 0.0)
    return Change("shift", cubic, "_y" in name, 0.0, number * image_size if name.endswith("rel") else number)
