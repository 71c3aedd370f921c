"""Operations drawn for each image, carried out for all images at once that have the same one in the same layer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor

from vitinit.benchmark.augmentations.operations import image_operations as batched

PLAIN = "posterize", "solarize", "solarize_add", "auto_contrast", "equalize"
BLENDED = "brightness", "contrast", "color", "sharpness"
OPERATIONS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    **{name: getattr(batched, name) for name in PLAIN},
    **{name: partial(batched.away_from, getattr(batched, name)) for name in BLENDED},
}
for _way, _reach in (("linear", range(2)), ("cubic", range(-1, 3))):
    OPERATIONS[f"across_{_way}"] = partial(batched.affine, across=_reach, down=range(1))
    OPERATIONS[f"down_{_way}"] = partial(batched.affine, across=range(1), down=_reach)
    OPERATIONS[f"both_{_way}"] = partial(batched.affine, across=_reach, down=_reach)
"""Operations on an image. Inverting is solarizing."""
KINDS = ("nothing", *OPERATIONS)
NUMBERS = 6
"""At most so many numbers go with an operation."""


def numbers(kind: str, *values: float) -> tuple[float, ...]:
    """Return the place of an operation in `KINDS` and its numbers, with zeros up to `NUMBERS` of them."""
    return float(KINDS.index(kind)), *values, *[0.0] * (NUMBERS - len(values))


def carry_out(images_BCHW: Tensor, drawn_BLN: np.ndarray, fill_C11: Tensor) -> Tensor:
    """New images, changed as drawn.

    Args:
        images_BCHW: uint8, B x 3 x S x S.
        drawn_BLN: for each image and layer, float64, `numbers`.
        fill_C11: uint8, on the device of the images: the colour of what comes from outside an image.
    """
    images_BCHW = images_BCHW.clone(memory_format=torch.contiguous_format)
    for drawn_BN in drawn_BLN.swapaxes(0, 1):
        kinds_B = drawn_BN[:, 0].astype(int)
        order_B = kinds_B.argsort(kind="stable")
        table_BX = torch.from_numpy(np.column_stack([order_B, drawn_BN[order_B, 1:]]))
        table_BX = table_BX.to(images_BCHW.device, non_blocking=True)
        counts = np.bincount(kinds_B, minlength=len(KINDS)).tolist()
        _nothing, *parts = table_BX.split(counts)
        for change, part_NX in zip(OPERATIONS.values(), parts, strict=True):
            if len(part_NX):
                places_N = part_NX[:, 0].long()
                changed_NCHW = change(images_BCHW.index_select(0, places_N), part_NX[:, 1:], fill_C11)
                batched.replace_(images_BCHW, places_N, changed_NCHW)
    return images_BCHW


def fill_color(mean: Sequence[float]) -> Tensor:
    """Return timm's fill colour: the mean of each channel (in 0..1), uint8, C x 1 x 1."""
    return torch.tensor([min(255, round(255 * channel)) for channel in mean], dtype=torch.uint8)[:, None, None]
