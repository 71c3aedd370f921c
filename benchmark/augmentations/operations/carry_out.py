"""Operations drawn for each image, carried out for all images at once that have the same one in the same layer."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from vitinit.benchmark.augmentations.operations import image_operations as batched
from vitinit.benchmark.augmentations.operations.image_operations import replace_

POINTWISE: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "posterize": batched.posterize,
    "solarize": batched.solarize,
    "solarize_add": batched.solarize_add,
    "auto_contrast": batched.autocontrast,
    "equalize": batched.equalize,
    "grey": batched.grey,
}
ENHANCING = ("brightness", "contrast", "color", "sharpness")
SHIFTING = ("shift rows, linear", "shift columns, linear", "shift columns, cubic", "shift rows, cubic")
ROTATING = ("rotate, linear", "rotate, cubic")

KINDS = ("nothing", *POINTWISE, *ENHANCING, *SHIFTING, *ROTATING, "affine, nearest", "blur")
"""Operations on an image. Those that have much in common are carried out together. Inverting is solarizing."""

PLACES = {kind: float(place) for place, kind in enumerate(KINDS)}
NUMBERS = 6
"""At most so many numbers go with an operation."""


def numbers(kind: str, *values: float) -> tuple[float, ...]:
    """Return the place of an operation in `KINDS` and its numbers, with zeros up to `NUMBERS` of them."""
    return PLACES[kind], *values, *[0.0] * (NUMBERS - len(values))


def carry_out(images_BCHW: Tensor, drawn_BLN: np.ndarray, fill_C11: Tensor) -> Tensor:
    """New images, changed as drawn.

    Args:
        images_BCHW: uint8, B x 3 x S x S.
        drawn_BLN: for each image and layer, float64: the place in `KINDS` of what is done, and the numbers it takes; of
            a rotation, cosine and sine; of a shift, how much further each line is shifted than the one before it, and
            by how many pixels the edge is; of an affine map its matrix; of a blur `image_operations.box_weights`.
        fill_C11: uint8, on the device of the images: the colour of what comes from outside an image.
    """
    images_BCHW = images_BCHW.clone(memory_format=torch.contiguous_format)
    for drawn_BN in drawn_BLN.swapaxes(0, 1):
        kinds_B = drawn_BN[:, 0].astype(int)
        nothing, *counts = np.bincount(kinds_B, minlength=len(KINDS)).tolist()
        if not sum(counts):
            continue
        places_N = kinds_B.argsort(kind="stable")[nothing:]
        table_NX = torch.from_numpy(np.column_stack([places_N, drawn_BN[places_N, 1:]]))
        table_NX = table_NX.to(images_BCHW.device, non_blocking=True)
        places, numbers_NX = table_NX[:, 0].long(), table_NX[:, 1:]
        replace_(images_BCHW, places, _changed(images_BCHW.index_select(0, places), numbers_NX, counts, fill_C11))
    return images_BCHW


def _changed(images_NCHW: Tensor, numbers_NX: Tensor, counts: Sequence[int], fill_C11: Tensor) -> Tensor:
    """Apply the changes of one layer to images sorted by kind; `counts` has the number of each kind."""
    count_of = dict(zip(KINDS[1:], counts, strict=True))
    done, first = [], 0

    def taken(*kinds: str) -> tuple[Tensor, Tensor, list[int]]:
        nonlocal first
        part = slice(first, first := first + sum(count_of[kind] for kind in kinds))
        return images_NCHW[part], numbers_NX[part], [count_of[kind] for kind in kinds]

    for kind, change in POINTWISE.items():
        if count_of[kind]:
            images, values, _ = taken(kind)
            done.append(change(images, values[:, 0]))
    images, values, each = taken(*ENHANCING)
    if len(images):
        done.append(batched.enhance(images, values[:, 0], each))
    images, values, each = taken(*SHIFTING)
    if len(images):
        columns = images[each[0] : len(images) - each[3]]
        columns.copy_(columns.mT.contiguous())
        shifted = batched.shift_rows(images, values[:, :2], [each[0] + each[1], each[2] + each[3]], fill_C11)
        columns = shifted[each[0] : len(images) - each[3]]
        columns.copy_(columns.mT.contiguous())
        done.append(shifted)
    images, values, each = taken(*ROTATING)
    if len(images):
        done.append(batched.rotate(images, values[:, :2], each, fill_C11))
    images, values, _ = taken("affine, nearest")
    if len(images):
        done.append(batched.affine_nearest(images, values, fill_C11))
    images, values, _ = taken("blur")
    if len(images):
        done.append(batched.blur(images, values[:, :3]))
    return torch.cat(done)


def fill_color(mean: Sequence[float]) -> Tensor:
    """Return timm's fill colour: the mean of each channel (in 0..1), uint8, C x 1 x 1."""
    return torch.tensor([min(255, round(255 * channel)) for channel in mean], dtype=torch.uint8)[:, None, None]
