"""Operations drawn for each image, carried out for all images at once that have the same one in the same layer.

And what timm draws of them: by its own code, image by image, without the work.
"""

import math
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from vitinit.benchmark.augmentations.operations import image_operations as batched
from vitinit.initializers.errors import VitinitError

OPERATIONS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "posterize": batched.posterize,
    "solarize": batched.solarize,
    "solarize_add": batched.solarize_add,
    "auto_contrast": batched.auto_contrast,
    "equalize": batched.equalize,
    "brightness": partial(batched.blend_with, torch.zeros_like),
    "contrast": partial(batched.blend_with, batched.mean_grey),
    "color": partial(batched.blend_with, batched.grey),
    "sharpness": partial(batched.blend_with, batched.smooth),
}
for _way, _reach in (("linear", range(2)), ("cubic", range(-1, 3))):
    OPERATIONS[f"across_{_way}"] = partial(batched.affine, across=_reach, down=range(1))
    OPERATIONS[f"down_{_way}"] = partial(batched.affine, across=range(1), down=_reach)
    OPERATIONS[f"both_{_way}"] = partial(batched.affine, across=_reach, down=_reach)
"""Operations on an image. Inverting is solarizing."""
KINDS = ("nothing", *OPERATIONS)
NUMBERS = 6
"""At most so many numbers go with an operation."""
Numbers = tuple[float, ...]


def numbers(kind: str, *values: float) -> Numbers:
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
        table_BX = batched.sent(table_BX, images_BCHW.device)
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


NOTHING = numbers("nothing")


@contextmanager
def seeded_python(seed: int) -> Iterator[None]:
    """Python's and numpy's global generators, seeded inside and put back after: for libraries that read them."""
    python_state, numpy_state = random.getstate(), np.random.get_state()  # noqa: NPY002
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002
    try:
        yield
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)  # noqa: NPY002


@cache
def recording(transform_of: Any, config: str, image_size: int) -> Any:
    """Record in place of timm's operations: each gives the numbers of what it would carry out.

    Raises:
        VitinitError: timm refuses the configuration.
    """
    try:
        transform = transform_of(config, {})
    except Exception as error:  # timm checks with bare asserts
        raise VitinitError(f"augmentation: {config!r} is not for timm: {error!r}") from error
    for op in transform.ops:
        op.aug_fn = partial(_recorded, op.aug_fn.__name__, image_size)
    return transform


def _recorded(name: str, size: int, _: Numbers, by: float = 0.0, *, resample: Any, **__: Any) -> Numbers:
    """Draw as timm's function of this name does, and return the numbers of `carry_out`."""
    if name in OPERATIONS:
        return numbers(name, by)
    if name == "invert":
        return numbers("solarize", 0.0)
    angle, half = -math.radians(by % 360), size / 2
    cos, sin = round(math.cos(angle), 15), round(math.sin(angle), 15)  # rounded as by Pillow
    moved, *matrix = {
        "shear_x": ("across", 1, by, 0, 0, 1, 0),
        "shear_y": ("down", 1, 0, 0, by, 1, 0),
        "translate_x_rel": ("across", 1, 0, by * size, 0, 1, 0),
        "translate_y_rel": ("down", 1, 0, 0, 0, 1, by * size),
        "rotate": ("both", cos, sin, cos * -half + sin * -half + half, -sin, cos, -sin * -half + cos * -half + half),
    }[name]
    way = "cubic" if random.choice(resample) == Image.Resampling.BICUBIC else "linear"
    return numbers(f"{moved}_{way}", *matrix)
