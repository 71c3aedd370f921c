"""Load of a GPU while a run trains: how busy it is, by NVIDIA's management library, and its memory."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch

SAMPLE_S = 5.0
"""Seconds between two samples; the library itself averages over up to one second."""


class Load:
    """Samples of a GPU's utilisation in percent; none on a CPU, and where the library is not there."""

    def __init__(self, device: torch.device, busy: Callable[[], int] | None) -> None:
        self.device, self.busy = device, busy
        self.samples: list[int] = []

    def sample(self) -> None:
        """Take one."""
        if self.busy:
            with suppress(OSError):
                self.samples.append(self.busy())

    @property
    def mean(self) -> dict[str, Any]:
        """Mean of all samples, for a record; empty where there are none."""
        return {"busy_percent": round(sum(self.samples) / len(self.samples))} if self.samples else {}

    def describe(self) -> str:
        """Take a sample and return it, and the memory that all processes take, for people; empty on a CPU."""
        if self.device.type != "cuda":
            return ""
        self.sample()
        free, total = torch.cuda.mem_get_info(self.device)
        memory = f"{(total - free) / 2**30:.1f} of {total / 2**30:.1f} GiB"
        return f"GPU {self.samples[-1]}% busy, {memory}" if self.samples else f"GPU with {memory} in use"


@contextmanager
def watched(device: torch.device) -> Iterator[Load]:
    """Sample the load of a device in a thread of its own, within."""
    load, over = Load(device, utilisation(device)), threading.Event()

    def sample() -> None:
        while not over.wait(SAMPLE_S):
            load.sample()

    thread = threading.Thread(target=sample, name="GPU load", daemon=True)
    if load.busy:
        thread.start()
    try:
        yield load
    finally:
        over.set()
        if load.busy:
            thread.join()


def utilisation(device: torch.device) -> Callable[[], int] | None:
    """Return a function that reads the share of time, in percent, in which a GPU computes; None where it cannot."""
    if device.type != "cuda":
        return None
    uuid = getattr(torch.cuda.get_device_properties(device), "uuid", None)
    try:
        library, handle = ctypes.CDLL("libnvidia-ml.so.1"), ctypes.c_void_p()
        # as torch names it: numbers of the library are not those of CUDA_VISIBLE_DEVICES
        if library.nvmlInit_v2() or library.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}".encode(), ctypes.byref(handle)):
            return None
    except (OSError, AttributeError):  # of AMD, or in a container without it
        return None

    def busy() -> int:
        shares = (ctypes.c_uint * 2)()  # of the GPU, of its memory's bandwidth
        if code := library.nvmlDeviceGetUtilizationRates(handle, ctypes.byref(shares)):
            raise OSError(f"NVML says {code}")
        return shares[0]

    return busy
