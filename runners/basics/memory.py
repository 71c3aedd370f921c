"""Out-of-memory errors of any device."""

from __future__ import annotations

import re

import torch

SAID = re.compile(
    r"out of memory|ALLOC_FAILED|can't allocate memory|not enough memory|busy or unavailable|"
    r"CU(BLAS|DNN)_STATUS_NOT_INITIALIZED|unable to find (an engine|a valid cuDNN algorithm)|"
    r"MPS client failed to connect",
    re.IGNORECASE,
)
"""By CUDA where a context is made, also of a GPU that others have to themselves; by its libraries, which need memory
for a handle or a workspace; by the daemon that lets processes share a GPU; by torch of the CPU, as a RuntimeError."""


def out_of_memory(error: BaseException) -> bool:
    """Return True for an out-of-memory error of any device."""
    if isinstance(error, RuntimeError) and SAID.search(str(error)):
        return True
    return isinstance(error, MemoryError | torch.OutOfMemoryError)
