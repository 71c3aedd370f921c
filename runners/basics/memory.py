"""Memory that there is not."""

from __future__ import annotations

import re

import torch

SAID = re.compile(r"out of memory|ALLOC_FAILED|can't allocate memory|not enough memory")
"""By CUDA where a context is made, by its libraries, and by torch of the CPU, as a RuntimeError."""


def out_of_memory(error: BaseException) -> bool:
    """Return True for an out-of-memory error of any device."""
    if isinstance(error, RuntimeError) and SAID.search(str(error)):
        return True
    return isinstance(error, MemoryError | torch.OutOfMemoryError)
