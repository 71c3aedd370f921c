"""Checkpoints: `<folder>/step-00001234.ckpt`, of which the newest two are kept.

The new file is complete and on the disk before an older one goes. A file carries a digest of its content, so that a
damaged one is known as such, and the one before it is used. They are data: nothing in them is ever executed.
"""

from __future__ import annotations

import errno
import hashlib
import io
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from vitinit.benchmark.files.atomic import write_atomically
from vitinit.initializers.errors import VitinitError, plain
from vitinit.runners.basics.gpu import out_of_memory
from vitinit.runners.basics.setting import SaveInterval

HEADER = b"vitinit checkpoint 1\n"
"""Then 64 hex digits of sha256, a line feed, and what `torch.save` wrote."""


class Checkpoints:
    """The checkpoints of one run.

    Args:
        folder: where they are; it exists.
        interval: how often to save.
        report: told, in one line, about a damaged file and about a save that failed. Neither ends the run.
    """

    def __init__(self, folder: Path, interval: SaveInterval, report: Callable[[str], None]) -> None:
        self.folder, self.interval, self.report = folder, interval, report
        self._saved_at, self._saved_step, self._took = time.monotonic(), 0, 0.0
        self._good: Path | None = None
        for path in folder.glob(".step-*.tmp"):  # of savers that were killed
            _unlink(path)

    def newest_first(self) -> Iterator[dict[str, Any]]:
        """The contents of all undamaged files; tensors are on the CPU. Keep to the last one taken with `goes_on`.

        Raises:
            VitinitError: a file cannot be read at the moment. It is kept: what is passed over goes with the next save.
            MemoryError: there is none to read it.
        """
        for path in reversed(self._files()):
            try:
                state = read(path)
            except FileNotFoundError:
                continue
            except OSError as error:  # of the disk, or the network: the file may be sound
                raise VitinitError(f"checkpoint {path} cannot be read now: {error.strerror or error}") from None
            except ValueError as error:
                self.report(f"checkpoint {path} is passed over: {plain(str(error), 300)}")
            else:
                self._good = path
                yield state
        self._good = None

    def goes_on(self, step: int) -> None:
        """The run goes on from the checkpoint that was taken last, at this step."""
        self._saved_step = step

    def due(self, step: int) -> bool:
        """Return True if it is time to save at this step (counted over the whole run)."""
        seconds, steps = max(60 * self.interval.minutes, 99 * self._took), self.interval.steps
        return time.monotonic() - self._saved_at >= seconds or bool(steps and step - self._saved_step >= steps)

    def save(self, state: dict[str, Any], step: int) -> None:
        """Write a checkpoint; when that fails the older ones stay, and the run goes on without a new one."""
        start = time.monotonic()
        path = self.folder / f"step-{step:08d}.ckpt"
        try:
            content = pack(state)
            try:
                write_atomically(path, content)
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EDQUOT) or not self.make_room():
                    raise
                write_atomically(path, content)
        except (OSError, MemoryError) as error:
            why = getattr(error, "strerror", None) or str(error) or type(error).__name__
            self.report(f"no checkpoint at step {step}: cannot write {path}: {why}")
        else:
            self._good = path
            self._rotate()
        finally:
            self._saved_at, self._saved_step = time.monotonic(), step
            self._took = self._saved_at - start

    def make_room(self) -> bool:
        """Remove all but the one that the run would go on from; says whether there was anything to remove."""
        surplus = [path for path in self._files() if path != self._good]
        return any([_unlink(path) for path in surplus])

    def exist(self) -> bool:
        """Return True if there are any."""
        return bool(self._files())

    def remove(self) -> None:
        """Remove all of them: the run is to begin anew."""
        for path in self._files():
            _unlink(path)

    def _rotate(self) -> None:
        """Keep the newest and the one before. Later ones were passed over: they are of a future that is abandoned."""
        files = self._files()
        newest = files.index(self._good) if self._good in files else len(files) - 1
        for path in [*files[newest + 1 :], *files[: max(0, newest - 1)]]:
            _unlink(path)

    def _files(self) -> list[Path]:
        return sorted(path for path in self.folder.glob("step-*.ckpt") if path.is_file())


def _unlink(path: Path) -> bool:
    """Remove a file and return True if that worked; a file that stays is no reason to end a run."""
    try:
        path.unlink()
    except OSError:
        return False
    return True


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
    return unpack(path.read_bytes())


def unpack(content: bytes) -> dict[str, Any]:
    """Return the content given to `pack`, tensors on the CPU.

    Raises:
        ValueError: it is damaged, or no checkpoint of this version.
    """
    if not content.startswith(HEADER):
        raise ValueError("not a checkpoint of this version of vitinit")
    start = len(HEADER) + 65
    digest, payload = content[len(HEADER) : start - 1], memoryview(content)[start:]
    if hashlib.sha256(payload).hexdigest().encode() != digest:
        raise ValueError(f"damaged (its {len(payload)} bytes do not have the digest written with them)")
    try:
        state = torch.load(io.BytesIO(payload), map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises errors of many types for what it refuses to load
        if out_of_memory(error):
            raise MemoryError("no memory to read a checkpoint") from None
        raise ValueError(f"cannot be loaded: {' '.join(str(error).split())[:200]}") from None
    if not isinstance(state, dict):
        raise ValueError("holds no checkpoint")
    return state
