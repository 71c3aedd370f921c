"""Hardware facts of this machine that need no torch, whose import takes seconds."""

from __future__ import annotations

import contextlib
import glob
import os
import shlex
import shutil
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

GPU_FILES = ("/dev/nvidia*", "/dev/nvhost*", "/dev/dxg", "/dev/kfd")
"""Under Linux one of these is there wherever torch can find a GPU: NVIDIA's, a Jetson's, that of WSL, AMD's."""

MOST_THREADS = 4096
"""Thread limit of torch, which ends the process where the system refuses more."""


def cores() -> int:
    """Cores that this process may use: fewer than the machine has inside a container or a cluster job."""
    return len(usable_cores())


def usable_cores() -> tuple[int, ...]:
    """Their numbers."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def several() -> bool:
    """Return True if this process was started as one of several, by its environment variables."""
    return os.environ.get("WORLD_SIZE", "1") != "1"


def lacks_compiler() -> str:
    """Return why torch.compile has no C++ compiler here; empty where it has one. It takes $CXX, or a default."""
    name = os.environ.get("CXX", "clang++" if sys.platform == "darwin" else "g++")
    with contextlib.suppress(ValueError):  # quotes that are not closed
        if name.split() and shutil.which(shlex.split(name)[0]):
            return ""
    return (
        f"torch.compile needs a C++ compiler on a CPU, and {name!r} is not on the PATH (the variable CXX names another)"
    )


def gpu_possible() -> bool:
    """Return True if torch could find a GPU here, without asking torch."""
    return sys.platform != "linux" or any(map(glob.glob, GPU_FILES))


def gpu_slots() -> list[str]:
    """Return, for each GPU that torch finds, the value of CUDA_VISIBLE_DEVICES that shows a process this one alone."""
    if not gpu_possible():
        return []
    import torch

    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    number = torch.cuda.device_count()  # of what is visible, and makes no context on a GPU
    return [name.strip() for name in visible.split(",")][:number] if visible else list(map(str, range(number)))


def float64_device(device: torch.device) -> torch.device:
    """Return the same device; the CPU in place of Apple's GPUs (`mps`), which have no float64."""
    import torch

    return torch.device("cpu") if device.type == "mps" else device


def default_device() -> str:
    """`cuda` where torch finds a GPU, else `cpu`. Where there is no driver, torch is not asked."""
    if not gpu_possible():
        return "cpu"
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"
