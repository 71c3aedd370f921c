"""Hardware facts of this machine that need no torch, whose import takes seconds."""

from __future__ import annotations

import contextlib
import glob
import importlib.util
import os
import shlex
import shutil
import sys
import sysconfig
import warnings
from pathlib import Path

GPU_FILES = ("/dev/nvidia*", "/dev/nvhost*", "/dev/dxg", "/dev/kfd")
"""Under Linux one of these is there wherever torch can find a GPU: NVIDIA's, a Jetson's, that of WSL, AMD's."""

NVIDIA_GPU = "/dev/nvidia[0-9]*"
"""One file for each NVIDIA GPU whose driver is loaded."""
DRIVER = Path("/proc/driver/nvidia/version")
OLDEST_DRIVER = {"12": 525, "13": 580}
"""NVIDIA's oldest driver for a major version of CUDA."""

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


def lacks_compiler(device: str) -> str:
    """Return what torch.compile lacks here for a device, `cpu` or `cuda`; empty where it has all it needs."""
    return _lacks_cpp() if device == "cpu" else _lacks_triton()


def _lacks_triton() -> str:
    """Return what triton lacks, which builds in C with the headers of Python; it takes $CC, gcc or clang."""
    if importlib.util.find_spec("triton") is None:
        return "torch.compile needs triton on a GPU, and it is not installed (make setup installs it on Linux)"
    name = os.environ.get("CC")
    if not any(shutil.which(each) for each in ([name] if name else ["gcc", "clang"])):
        said = f"{name!r} is not" if name else "neither gcc nor clang is"
        return f"torch.compile needs a C compiler on a GPU, and {said} on the PATH (the variable CC names another)"
    headers = Path(sysconfig.get_paths()["include"], "Python.h")
    if not headers.is_file():
        return f"torch.compile needs Python's headers on a GPU, and {headers} is not here (Debian: python3-dev)"
    return ""


def _lacks_cpp() -> str:
    """Return why there is no C++ compiler here; it is $CXX, or a default."""
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
    import torch

    from vitinit.runners.basics.environment import driver_version

    cuda = torch.version.cuda
    built = f"needs CUDA {cuda}" if cuda else "is built without CUDA"
    driver = driver_version(DRIVER.read_text()) if DRIVER.is_file() else None
    oldest = OLDEST_DRIVER.get((cuda or "").partition(".")[0], 0)
    if not cuda:
        way_out = "Install a torch with CUDA (make setup does)"
    elif driver and int(driver.partition(".")[0]) < oldest:
        older = "Run make setup CUDA=12, or " if int(driver.partition(".")[0]) >= OLDEST_DRIVER["12"] else ""
        way_out = f"{older}{'update' if older else 'Update'} the driver to {oldest} or newer"
    else:
        way_out = "See nvidia-smi"
    return (
        f"torch does not see the NVIDIA GPU of this machine: driver {driver or 'unknown'}, "
        f"torch {torch.__version__} {built}. {way_out}"
    )
