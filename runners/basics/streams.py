"""Named random streams, and the global generators of Python and numpy for libraries that read them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from vitinit.initializers.streams import derive, stream

__all__ = ["derive", "reseed_python", "seeded_python", "stream"]


@contextmanager
def seeded_python(seed: int) -> Iterator[None]:
    """Python's and numpy's global generators, seeded inside and put back after: for libraries that read them."""
    python_state, numpy_state = random.getstate(), np.random.get_state()  # noqa: NPY002
    reseed_python(seed)
    try:
        yield
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)  # noqa: NPY002


def reseed_python(seed: int) -> None:
    """Seeds Python's and numpy's global generators; within `seeded_python`, which puts them back."""
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002
