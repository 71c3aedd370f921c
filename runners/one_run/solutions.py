"""Solutions of slow initialisers, kept in the user's cache folder: each problem is solved once for all runs of a study.

The key is a hash over everything that a solution depends on, the machine included, so nothing here ever goes out of
date. The cache may be deleted at any time, and is never needed: a file that is missing or damaged, or a folder that
cannot be written, only costs the time of solving.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vitinit.benchmark.files.atomic import write_atomically

LIMIT_BYTES = 2**30
"""Size limit of the folder: beyond it the oldest files are removed."""

MACHINE = ("packages", "platform", "processor", "cpu", "blas", "cuda", "cudnn", "driver", "gpu", "flags", "variables")
"""Facts of an environment that fix the bits of a solution: the libraries, the processor, the number of threads, ..."""


def folder() -> Path | None:
    """Return the folder below $VITINIT_CACHE, $XDG_CACHE_HOME or ~/.cache; None where the first is `off`."""
    ours = os.environ.get("VITINIT_CACHE", "")
    if ours == "off":
        return None
    if ours:
        return Path(ours) / "solutions"
    given = os.environ.get("XDG_CACHE_HOME", "")
    # As the specification of XDG has it, a relative path is not valid.
    return Path(given if Path(given).is_absolute() else os.path.expanduser("~/.cache")) / "vitinit/solutions"  # noqa: PTH111


@dataclass
class Solutions:
    """Solves, or reads what was solved before; see `initializers.registry.Remember`."""

    environment: dict[str, Any]
    """Provenance of this run, from `runners.basics.environment.environment`."""
    seconds: float = 0.0
    """Seconds that the solutions read since took when they were computed."""
    reused: bool = False
    """True if any solution was read."""

    def __call__(self, inputs: Sequence[bytes], solve: Callable[[], tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
        """Return the result of `solve`, on the CPU where it was read; an error that it raises is passed on."""
        if (root := folder()) is None:
            return solve()
        path = root / f"{self._key(inputs)}.pt"
        kept = _read(path)
        if kept:
            self.seconds += kept["seconds"]
            self.reused = True
            return tuple(kept["solution"])
        start = time.perf_counter()
        solution = solve()
        seconds = time.perf_counter() - start
        content = io.BytesIO()
        torch.save({"seconds": seconds, "solution": [part.contiguous().cpu() for part in solution]}, content)
        with suppress(OSError):
            root.mkdir(parents=True, exist_ok=True)
            write_atomically(path, _digest(content.getbuffer()) + content.getbuffer())
            _shrink(root)
        return solution

    def _key(self, inputs: Sequence[bytes]) -> str:
        machine = {key: self.environment.get(key) for key in MACHINE}
        digest = hashlib.sha256()
        for part in (json.dumps(machine, sort_keys=True).encode(), *inputs):
            digest.update(len(part).to_bytes(8, "big") + part)
        return digest.hexdigest()


def _read(path: Path) -> dict[str, Any] | None:
    """Read a solution at `path`; None if there is none, or it is damaged."""
    try:
        content = memoryview(path.read_bytes())
    except OSError:
        return None
    if _digest(content[32:]) != content[:32]:
        return None
    kept: dict[str, Any] = torch.load(io.BytesIO(content[32:]), weights_only=True)
    return kept


def _digest(content: memoryview) -> bytes:
    return hashlib.sha256(content).digest()


def _shrink(root: Path) -> None:
    """Remove the oldest files until the rest is small enough; what a killed process left behind counts too."""
    files = sorted(((path.stat(), path) for path in root.iterdir()), key=lambda pair: pair[0].st_mtime, reverse=True)
    size = 0
    for stat, path in files:
        size += stat.st_size
        if size > LIMIT_BYTES:
            path.unlink(missing_ok=True)
