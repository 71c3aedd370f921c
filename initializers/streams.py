"""Named random streams: every random number comes from (seed, stream name, position), never from global state.

A stream holds no state between uses. The order of epoch 7 or the augmentation of its batch 12 can be drawn without
drawing what came before, and they are the same for every initialiser at one seed, which makes comparisons paired.
"""

import hashlib
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from torch import Generator


def derive(seed: int, name: str, *position: int) -> int:
    """A 63-bit seed for one position of a named stream, for example `derive(0, "augment", epoch, step)`."""
    digest = hashlib.sha256("/".join(map(str, (seed, name, *position))).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def stream(seed: int, name: str, *position: int) -> Generator:
    """A CPU generator at one position of a named stream."""
    return Generator().manual_seed(derive(seed, name, *position))


@contextmanager
def seeded_python(seed: int) -> Iterator[None]:
    """Seed Python's and numpy's global generators inside, and put them back after: for code that reads them."""
    state, numpy = random.getstate(), sys.modules.get("numpy")  # which PyTorch imports, and does without
    numpy_state = numpy and numpy.random.get_state()
    try:
        random.seed(seed)
        if numpy:
            numpy.random.seed(seed % 2**32)
        yield
    finally:
        random.setstate(state)
        if numpy:
            numpy.random.set_state(numpy_state)
