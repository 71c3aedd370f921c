"""Solutions of slow initialisers, kept in the user's cache folder: each problem is solved once for all runs of a study.

The key is a hash over everything that a solution depends on, the machine included, so nothing here ever goes out of
date. The cache may be deleted at any time, and is never needed: a file that is missing or damaged, or a folder that
cannot be written, only costs the time of solving.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from vitinit.benchmark.files.atomic import write_atomically
from vitinit.runners.training.checkpoint import pack, unpack

MACHINE = ("packages", "platform", "processor", "cpu", "blas", "cuda", "cudnn", "driver", "gpu", "flags", "variables")
"""Facts of an environment that fix the bits of a solution: the libraries, the processor, the number of threads, ..."""


@dataclass
class Solutions:
    """Solves, or reads what was solved before; see `initializers.registry.Remember`.

    Files are below $VITINIT_CACHE, $XDG_CACHE_HOME/vitinit or ~/.cache/vitinit; with VITINIT_CACHE=off there are none.
    """

    environment: dict[str, Any]
    """Provenance of this run, from `runners.basics.environment.environment`."""
    seconds: float = 0.0
    """Seconds that the solutions read since took when they were computed."""
    reused: bool = False
    """True if any solution was read."""

    def __call__(self, inputs: Sequence[bytes], solve: Callable[[], tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
        """Return the result of `solve`, on the CPU where it was read; an error that it raises is passed on."""
        cache = os.environ.get("VITINIT_CACHE") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "vitinit")
        if cache == "off":
            return solve()
        machine = {key: self.environment.get(key) for key in MACHINE}
        key = hashlib.sha256()
        for part in (json.dumps(machine, sort_keys=True).encode(), *inputs):
            key.update(len(part).to_bytes(8, "big") + part)
        path = Path(cache).expanduser() / f"solutions/{key.hexdigest()}"
        with suppress(OSError, ValueError):
            kept = unpack(path.read_bytes())
            self.seconds += kept["seconds"]
            self.reused = True
            return tuple(kept["solution"])
        start = time.perf_counter()
        solution = solve()
        kept = {"seconds": time.perf_counter() - start, "solution": [part.contiguous().cpu() for part in solution]}
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, bytes(pack(kept)))
        return solution
