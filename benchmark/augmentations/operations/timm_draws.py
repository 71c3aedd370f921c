"""Draws of timm's RandAugment and AugMix, made by timm's own code, image by image, without the work."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

import numpy as np
from PIL import Image
from timm.data import auto_augment

from vitinit.benchmark.augmentations.operations.carry_out import IN_PLACE, NUMBERS, numbers
from vitinit.initializers.errors import VitinitError

Numbers = tuple[float, ...]
NOTHING = numbers("nothing")
DEPTH = 3
"""Most operations in a chain of AugMix."""


def rand_augment(config: str, image_size: int, images: int, seed: int) -> np.ndarray:
    """Return what timm does to so many images one after the other, for a seed of its global generators.

    Returns:
        For each image and layer the numbers that `carry_out` takes.

    Raises:
        VitinitError: timm refuses the configuration, or it has operations that we have not.
    """
    timm = recording(auto_augment.rand_augment_transform, config, image_size)
    count, layers, weights = len(timm.ops), timm.num_layers, timm.choice_weights
    with seeded_python(seed):
        if weights is None:  # the draws of timm's `choice` for all images, in one call
            chosen = np.random.randint(0, count, (images, layers))  # noqa: NPY002
        else:
            chosen = np.array([np.random.choice(count, layers, False, weights) for _ in range(images)])  # noqa: NPY002
        return np.array([[timm.ops[number](NOTHING) for number in row] for row in chosen.tolist()])


def augmix(config: str, image_size: int, images: int, seed: int) -> np.ndarray:
    """Return what timm's AugMix does to so many images one after the other, for a seed of its global generators.

    Returns:
        B x (1 + chains) x (1 + DEPTH) x (1 + NUMBERS). At [b, 0, 0, 0] is the share of the mixed image, at
        [b, 1 + c, 0, 0] that of chain c in it, at [b, 1 + c, 1:] its operations, as `carry_out` takes them.
    """
    timm = recording(auto_augment.augment_and_mix_transform, config, image_size)
    drawn = np.zeros((images, 1 + timm.width, 1 + DEPTH, 1 + NUMBERS))
    with seeded_python(seed):
        for chains in drawn:
            chains[1:, 0, 0] = np.float32(np.random.dirichlet([timm.alpha] * timm.width))  # noqa: NPY002
            chains[0, 0, 0] = np.float32(np.random.beta(timm.alpha, timm.alpha))  # noqa: NPY002
            for chain in chains[1:]:
                depth = np.random.randint(1, 1 + DEPTH)  # noqa: NPY002
                chosen = np.random.choice(timm.ops, depth)  # noqa: NPY002
                chain[1 : 1 + depth] = [op(NOTHING) for op in chosen]
    return drawn


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
    **dict.fromkeys((*IN_PLACE, "invert"), _of_name),
    **dict.fromkeys(("shear_x", "shear_y", "translate_x_rel", "translate_y_rel", "rotate"), _moved),
}
"""Replacements of timm's functions: each draws as timm's does, and gives the numbers of `carry_out`."""
