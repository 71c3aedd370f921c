"""Draws of timm's RandAugment and AugMix, made by timm's own code, image by image, without the work."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
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
    timm = recording(config, image_size)
    with seeded_python(seed):
        return np.array([[timm.ops[number](NOTHING) for number in layers] for layers in _chosen(timm, images)])


def augmix(config: str, image_size: int, images: int, seed: int) -> np.ndarray:
    """Return what timm's AugMix does to so many images one after the other, for a seed of its global generators.

    Returns:
        B x (1 + chains) x (1 + DEPTH) x (1 + NUMBERS). At [b, 0, 0, 0] is the share of the mixed image, at
        [b, 1 + c, 0, 0] that of chain c in it, at [b, 1 + c, 1:] its operations, as `carry_out` takes them.
    """
    timm = recording(config, image_size)
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


def _chosen(timm: auto_augment.RandAugment, images: int) -> list[list[int]]:
    """The places of the operations of each image."""
    count, layers, weights = len(timm.ops), timm.num_layers, timm.choice_weights
    if weights is None:  # the draws of timm's `choice` for all images, in one call
        return np.random.randint(0, count, (images, layers)).tolist()  # noqa: NPY002
    return [np.random.choice(count, layers, False, weights).tolist() for _ in range(images)]  # noqa: NPY002


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
def recording(config: str, image_size: int) -> Any:
    """Replace timm's operations by recorders: each gives the `Change` that it would carry out.

    Raises:
        VitinitError: timm refuses the configuration, or it has operations that we have not.
    """
    try:
        transform = TRANSFORMS[config.partition("-")[0]](config)
    except Exception as error:  # timm checks with bare asserts
        raise VitinitError(f"augmentation: timm refuses {config!r}: {error}") from error
    for op in transform.ops:
        name = op.aug_fn.__name__
        if name not in RECORDERS:
            known = ", ".join(RECORDERS)
            raise VitinitError(f"augmentation: {config!r} asks for timm's {name}, which is not among: {known}")
        op.aug_fn = partial(RECORDERS[name], name, image_size)
    return transform


def _of_name(name: str, _size: int, _: Numbers, number: float = 0.0, **__: Any) -> Numbers:
    return numbers("solarize", 0.0) if name == "invert" else numbers(name, number)


def _rotation(_name: str, _size: int, _: Numbers, degrees: float, *, resample: Any, **__: Any) -> Numbers:
    angle = -math.radians(degrees % 360)  # rounded as by Pillow
    return numbers(f"rotate_{_way(resample)}", round(math.cos(angle), 15), round(math.sin(angle), 15))


def _shear(name: str, _size: int, _: Numbers, factor: float, *, resample: Any, **__: Any) -> Numbers:
    return numbers(f"shift_{name[-1]}_{_way(resample)}", factor)


def _translation(name: str, size: int, _: Numbers, share: float, *, resample: Any, **__: Any) -> Numbers:
    return numbers(f"shift_{name[len('translate_')]}_{_way(resample)}", 0.0, share * size)


def _way(resample: Sequence[Image.Resampling]) -> str:
    return "cubic" if random.choice(resample) == Image.Resampling.BICUBIC else "linear"


RECORDERS: dict[str, Callable[..., Numbers]] = {
    **dict.fromkeys((*IN_PLACE, "invert"), _of_name),
    **dict.fromkeys(("shear_x", "shear_y"), _shear),
    **dict.fromkeys(("translate_x_rel", "translate_y_rel"), _translation),
    "rotate": _rotation,
}
"""Replacements of timm's functions: each draws as timm's does, and gives the numbers of `carry_out`."""

TRANSFORMS: dict[str, Callable[[str], Any]] = {
    "rand": auto_augment.rand_augment_transform,
    "augmix": auto_augment.augment_and_mix_transform,
}
