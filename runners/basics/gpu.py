"""GPUs that do not compute or have no memory left, told apart from errors of a run."""

import math
import platform
import re
from contextlib import suppress
from pathlib import Path

import torch

from vitinit.benchmark.models.registry import ModelSpec
from vitinit.benchmark.spec import RunSpec
from vitinit.runners.basics.setting import BrokenDevice

OUT_OF_MEMORY = re.compile(
    r"out of memory|ALLOC_FAILED|can't allocate memory|not enough memory|busy or unavailable|"
    r"CU(BLAS|DNN)_STATUS_NOT_INITIALIZED|unable to find (an engine|a valid cuDNN algorithm)|"
    r"MPS client failed to connect",
    re.IGNORECASE,
)
"""By CUDA where a context is made, also of a GPU that others have to themselves; by its libraries, which need memory
for a handle or a workspace; by the daemon that lets processes share a GPU; by torch of the CPU, as a RuntimeError."""
SIZE = 64
"""Rows of the matrices that are multiplied: their product is exact in every precision."""
OF_THE_DEVICE = re.compile(r"(CUDA|HIP|Triton) error|CU(BLAS|DNN)_STATUS|cuDNN error", re.IGNORECASE)
"""Messages of an accelerator's libraries, also before torch.AcceleratorError (2.8)."""
OF_THE_CODE = "device-side assert"
"""Message of an index that is out of range, and the like: the code is wrong, the device is not."""
MARK = "device-lost"
"""File in the folder of an unfinished run that has lost its device once."""

MOST_AT_ONCE = 12
"""Runs that share a GPU at most, by default."""
HOST_S = 0.005
"""Seconds that a host takes to launch a step of a small model; 4.6 ms were measured beside an H200."""
SPEED = 5e13
"""FLOP/s of a GPU that is busy with a small model: half of what an H200 was measured at with ViT-Tiny."""
CONTEXT = 2**30
"""Bytes that CUDA and its libraries take in each process."""
ACTIVATION = 80
"""Bytes of activations for each feature of a token in a block, at most: 38 were measured of ViT-Tiny in fp16."""


def runs_at_once(spec: RunSpec, memory: int, cores: int) -> int:
    """Return how many runs like this one share a GPU: what keeps it busy, as far as memory and cores go.

    Of a model by name, whose size is not known before it is built, one.
    """
    model, recipe = spec.model, spec.recipe
    if not isinstance(model, ModelSpec):
        return 1
    tokens, parameters = recipe.batch_size * model.grid**2, 12 * model.depth * model.width**2
    busy = math.ceil(HOST_S / (6 * parameters * tokens / SPEED))
    needed = CONTEXT + 16 * parameters + ACTIVATION * tokens * model.width * model.depth
    return max(1, min(MOST_AT_ONCE, busy, cores, int(0.9 * memory / needed)))


def out_of_memory(error: BaseException) -> bool:
    """Return True for an out-of-memory error of any device."""
    said = isinstance(error, RuntimeError) and OUT_OF_MEMORY.search(str(error))
    return bool(said) or isinstance(error, MemoryError | torch.OutOfMemoryError)


def check(device: torch.device) -> None:
    """Multiply two matrices on a GPU; a CPU always passes.

    Raises:
        BrokenDevice: that fails.
    """
    if device.type == "cpu":
        return
    try:
        ones = torch.ones(SIZE, SIZE, device=device)
        if (ones @ ones).sum().item() != SIZE**3:
            raise RuntimeError("their product is wrong")
    except (RuntimeError, AssertionError) as error:  # AssertionError: torch was built without CUDA
        raise broken(device, error) from None


def after(error: BaseException, device: torch.device) -> BrokenDevice | None:
    """Return what is wrong with the device of a run that raised an error; None where the run is to blame."""
    of_the_device = isinstance(error, RuntimeError) and OF_THE_DEVICE.search(str(error))
    if of_the_device and not out_of_memory(error) and OF_THE_CODE not in str(error):
        try:
            check(device)
        except BrokenDevice:
            return broken(device, error)  # after a sticky error every call reports the first one
    return None


def to_blame(error: BaseException, device: torch.device, folder: Path) -> BrokenDevice | None:
    """Return the broken device behind an error of a run; None where the run is to blame.

    After a second lost device, which computed when the run began, the run itself is to blame.

    Args:
        error: that ended the run.
        device: of the run.
        folder: of the unfinished run.
    """
    lost, mark = after(error, device), folder / MARK
    with suppress(OSError):
        if lost and not mark.exists():
            mark.touch()
            return lost
        mark.unlink(missing_ok=True)
    return None


def broken(device: torch.device, error: BaseException) -> BrokenDevice:
    """Return the error that names this node, its device and the first line of what torch says."""
    said = str(error).strip().partition("\n")[0].rstrip(".") or type(error).__name__
    return BrokenDevice(
        f"node {platform.node()}: {device} cannot multiply two matrices: {said}. No run is recorded as failed; "
        "the same command goes on where a GPU computes (make setup CUDA=12 is for older drivers and V100)"
    )
