"""What RandAugment and AugMix draw by timm's own code, image by image, without the work."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

import numpy as np
from PIL import Image

from vitinit.benchmark.augmentations.operations.carry_out import BLENDED, PLAIN, numbers
from vitinit.initializers.errors import VitinitError

Numbers = tuple[float, ...]
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
        VitinitError: timm refuses the configuration, or it has operations that we have not.
    """
    try:
        transform = transform_of(config, {})
        for op in transform.ops:
            op.aug_fn = partial(RECORDERS[op.aug_fn.__name__], op.aug_fn.__name__, image_size)
    except Exception as error:  # timm checks with bare asserts
        raise VitinitError(f"augmentation: {config!r} is not for timm, or not for us: {error!r}") from error
    return transform


def _of_name(name: str, _size: int, _: Numbers, number: float = 0.0, **__: Any) -> Numbers:
    return numbers("solarize", 0.0) if name == "invert" else numbers(name, number)


def _moved(name: str, size: int, _: Numbers, by: float, *, resample: Any, **__: Any) -> Numbers:
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


RECORDERS: dict[str, Callable[..., Numbers]] = {
    **dict.fromkeys((*PLAIN, *BLENDED, "invert"), _of_name),
    **dict.fromkeys(("shear_x", "shear_y", "translate_x_rel", "translate_y_rel", "rotate"), _moved),
}
"""Replacements of timm's functions: each draws as timm's does, and gives the numbers of `carry_out`."""
