"""Hardware facts of this machine that need no torch, whose import takes seconds."""

from __future__ import annotations

import glob
import os
import shutil
import sys
import warnings

GPU_FILES = ("/dev/nvidia*", "/dev/nvhost*", "/dev/dxg", "/dev/kfd")
"""Under Linux one of these is there wherever torch can find a GPU: NVIDIA's, a Jetson's, that of WSL, AMD's."""

NVIDIA_GPU = "/dev/nvidia[0-9]*"
"""One file for each NVIDIA GPU whose driver is loaded."""


def cores() -> int:
    """Cores that this process may use: fewer than the machine has inside a container or a cluster job."""
    return len(usable_cores())


def usable_cores() -> tuple[int, ...]:
    """Their numbers."""
    every = range(os.cpu_count() or 1)
    return tuple(sorted(os.sched_getaffinity(0) if sys.platform == "linux" else every))


def several() -> bool:
    """Return True if this process was started as one of several, by its environment variables."""
    return os.environ.get("WORLD_SIZE", "1") != "1"


def lacks_compiler(device: str) -> str:
    """Return what torch.compile lacks here, a C++ compiler for a CPU, a C compiler for a GPU; empty if it is here."""
    variable, usual = ("CXX", "g++") if device == "cpu" else ("CC", "gcc")
    name = os.environ.get(variable, usual)
    return "" if shutil.which(name) else f"torch.compile needs {name}, or another compiler that {variable} names"


def gpu_possible() -> bool:
    """Return True if torch could find a GPU here, without asking torch."""
    return sys.platform != "linux" or any(map(glob.glob, GPU_FILES))


def gpu_slots() -> list[str]:
    """Return, for each GPU that torch finds, the value of CUDA_VISIBLE_DEVICES that shows a process this one alone."""
    if not gpu_possible():
        return []
    import torch

    number = torch.cuda.device_count()  # of what is visible, and makes no context on a GPU
    names = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(number)))
    return [name.strip() for name in names.split(",")][:number]


def default_device() -> str:
    """`cuda` where torch finds a GPU, else `cpu`. Where there is no driver, torch is not asked."""
    if not gpu_possible():
        return "cpu"
    import torch

    with warnings.catch_warnings():  # `unseen_gpu` says why
        warnings.simplefilter("ignore")
        return "cuda" if torch.cuda.is_available() else "cpu"


def unseen_gpu() -> str:
    """Return why torch does not see an NVIDIA GPU that is here, and what to do; empty where none is passed over.

    One that CUDA_VISIBLE_DEVICES hides is not wanted.
    """
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES", "0").strip() in ("", "-1")
    if hidden or not any(map(glob.glob, [NVIDIA_GPU])) or default_device() == "cuda":
        return ""
    return (
        "torch does not see the NVIDIA GPU of this machine, whose driver nvidia-smi shows: CUDA 13 needs 580 or newer; "
        "make setup CUDA=12 is for drivers from 525 on"
    )
