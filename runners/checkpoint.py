"""Checkpoints: `<folder>/step-00001234.ckpt`, of which the newest two are kept.

The new file is complete and on the disk before an older one goes. A file carries a digest of its content, so that a
damaged one is known as such, and the one before it is used. They are data: nothing in them is ever executed.
"""

from __future__ import annotations

import hashlib
import io
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmark.atomic import write_atomically

HEADER = b"vitinit checkpoint 1\n"
"""Then 64 hex digits of sha256, a line feed, and what `torch.save` wrote."""


@dataclass(frozen=True)
class Interval:
    """How often to save: after so many minutes, or so many optimiser steps, whichever comes first.

    Where saving is slow, the minutes are stretched so that it takes no more than a hundredth of the time.
    """

    minutes: float = 5.0
    steps: int | None = None


class Checkpoints:
    """The checkpoints of one run.

    Args:
        folder: where they are; it exists.
        interval: how often to save.
        report: told, in one line, about a damaged file and about a save that failed. Neither ends the run.
    """

    def __init__(self, folder: Path, interval: Interval, report: Callable[[str], None]) -> None:
        self.folder, self.interval, self.report = folder, interval, report
        self._saved_at, self._saved_step, self._took = time.monotonic(), 0, 0.0

    def newest_first(self) -> Iterator[dict[str, Any]]:
        """The contents of all undamaged files; tensors are on the CPU."""
        for path in reversed(self._files()):
            try:
                state = read(path)
            except (OSError, ValueError) as error:
                self.report(f"checkpoint {path} is passed over: {error}")
            else:
                yield state

    def due(self, step: int) -> bool:
        """Whether it is time to save at this step (counted over the whole run)."""
        seconds, steps = max(60 * self.interval.minutes, 99 * self._took), self.interval.steps
        return time.monotonic() - self._saved_at >= seconds or bool(steps and step - self._saved_step >= steps)

    def save(self, state: dict[str, Any], step: int) -> bool:
        """Write a checkpoint; when that fails the older ones stay, and the run goes on without a new one."""
        start = time.monotonic()
        content = pack(state)
        path = self.folder / f"step-{step:08d}.ckpt"
        try:
            try:
                write_atomically(path, content)
            except OSError:
                if not self.thin_out():
                    raise
                write_atomically(path, content)
        except OSError as error:
            self.report(f"no checkpoint at step {step}: cannot write {path}: {error.strerror or error}")
            return False
        else:
            self.thin_out(keep=2)
            return True
        finally:
            self._saved_at, self._saved_step = time.monotonic(), step
            self._took = self._saved_at - start

    def thin_out(self, keep: int = 1) -> bool:
        """Remove all but the newest; says whether there was anything to remove."""
        surplus = self._files()[:-keep]
        for path in surplus:
            path.unlink(missing_ok=True)
        return bool(surplus)

    def remove(self) -> None:
        """Remove all of them: the run is to begin anew."""
        for path in self._files():
            path.unlink(missing_ok=True)

    def _files(self) -> list[Path]:
        return sorted(self.folder.glob("step-*.ckpt"))


def pack(state: dict[str, Any]) -> memoryview:
    """The bytes of a checkpoint file."""
    buffer = io.BytesIO()
    buffer.write(HEADER + bytes(64) + b"\n")
    start = buffer.tell()
    torch.save(state, buffer)
    digest = hashlib.sha256(buffer.getbuffer()[start:]).hexdigest()
    buffer.seek(len(HEADER))
    buffer.write(digest.encode())
    return buffer.getbuffer()


def read(path: Path) -> dict[str, Any]:
    """Read one file; only tensors and plain Python values come out of it.

    Raises:
        OSError: it cannot be read.
        ValueError: it is damaged, or no checkpoint of this version.
    """
    content = path.read_bytes()
    if not content.startswith(HEADER):
        raise ValueError("not a checkpoint of this version of vitinit")
    start = len(HEADER) + 65
    digest, payload = content[len(HEADER) : start - 1], content[start:]
    if hashlib.sha256(payload).hexdigest().encode() != digest:
        raise ValueError(f"damaged (its {len(payload)} bytes do not have the digest written with them)")
    try:
        state = torch.load(io.BytesIO(payload), map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises errors of many types for what it refuses to load
        raise ValueError(f"cannot be loaded: {' '.join(str(error).split())[:200]}") from None
    if not isinstance(state, dict):
        raise ValueError("holds no checkpoint")
    return state
