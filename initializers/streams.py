"""Named random streams: every random number comes from (seed, stream name, position), never from global state.

A stream holds no state between uses. The order of epoch 7 or the augmentation of its batch 12 can be drawn without
drawing what came before, and they are the same for every initialiser at one seed, which makes comparisons paired.
"""

import hashlib

from torch import Generator


def derive(seed: int, name: str, *position: int) -> int:
    """A 63-bit seed for one position of a named stream, for example `derive(0, "augment", epoch, step)`."""
    text = "/".join([str(seed), name, *map(str, position)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def stream(seed: int, name: str, *position: int) -> Generator:
    """A CPU generator at one position of a named stream."""
    return Generator().manual_seed(derive(seed, name, *position))
