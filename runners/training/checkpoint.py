"""Checkpoints: `<folder>/step-00001234.ckpt`, of which the newest two are kept.

The new file is complete and on the disk before an older one goes. A file carries a digest of its content, so that a
damaged one is known as such, and the one before it is used. They are data: nothing in them is ever executed.
"""

import hashlib
import io
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from vitinit.benchmark.files.atomic import write_atomically
from vitinit.benchmark.files.reading import read
from vitinit.initializers.errors import plain
from vitinit.runners.basics.gpu import out_of_memory
from vitinit.runners.basics.setting import Refused
from vitinit.runners.one_run.claims import checkpoints

HEADER = b"vitinit checkpoint 1\n"
"""Then 64 hex digits of sha256, a line feed, and what `torch.save` wrote."""
START = len(HEADER) + 65


class Checkpoints:
    """The checkpoints of one run.

    Args:
        folder: where they are; it exists.
        minutes: how often to save; 0 is after every step. Where saving is slow it takes a hundredth of the time.
        report: told, in one line, about a file that is passed over and about a save that failed. Neither ends the run.
        users: whose files are used; anyone else who can write there may have made up the numbers. None: all.
    """

    def __init__(
        self, folder: Path, minutes: float, report: Callable[[str], None], users: Collection[int] | None = None
    ) -> None:
        self.folder, self.minutes, self.report, self.users = folder, minutes, report, users
        self._saved_at, self._took = time.monotonic(), 0.0
        self._good: Path | None = None
        for path in folder.glob(".step-*.tmp"):  # of savers that were killed
            _unlink(path)

    def newest_first(self) -> Iterator[dict[str, Any]]:
        """The contents of all undamaged files; tensors are on the CPU. The last one taken is what the run goes on from.

        Raises:
            Refused: a file cannot be read at the moment. It is kept: what is passed over goes with the next save.
            MemoryError: there is none to read it.
        """
        for path, user in reversed(checkpoints(self.folder).items()):
            if self.users is not None and user not in self.users:
                self.report(f"checkpoint {path} is passed over: another user wrote it, who alone goes on from it")
                continue
            self._good = path
            try:
                content = read(path, 2**40)
            except OSError as error:  # the file may be sound
                raise Refused(f"checkpoint {path} cannot be read now: {error.strerror or error}") from None
            try:
                yield unpack(content)
            except ValueError as error:
                self.report(f"checkpoint {path} is passed over: {plain(str(error), 300)}")
        self._good = None

    def due(self) -> bool:
        """Return True if it is time to save."""
        return not self.minutes or time.monotonic() - self._saved_at >= max(60 * self.minutes, 99 * self._took)

    def save(self, state: dict[str, Any], step: int) -> None:
        """Write a checkpoint of a step, counted over the whole run; when that fails the older ones stay."""
        start = time.monotonic()
        path = self.folder / f"step-{step:08d}.ckpt"
        try:
            content = pack(state)
            try:
                write_atomically(path, content)
            except OSError:  # a full disk
                if not self.make_room():
                    raise
                write_atomically(path, content)
        except (OSError, MemoryError) as error:
            why = getattr(error, "strerror", None) or repr(error)
            self.report(f"no checkpoint at step {step}: cannot write {path}: {why}")
        else:
            # Keep this one and the last that was good: what was passed over is damaged, or of an abandoned future.
            files = checkpoints(self.folder)
            for old in files.keys() - {path, self._good or max(filter(path.__gt__, files), default=path)}:
                _unlink(old)
            self._good = path
        self._saved_at = time.monotonic()
        self._took = self._saved_at - start

    def make_room(self) -> bool:
        """Remove all but the one that the run would go on from; says whether there was anything to remove."""
        return any([_unlink(path) for path in checkpoints(self.folder) if path != self._good])


def _unlink(path: Path) -> bool:
    """Remove a file and return True if that worked; a file that stays is no reason to end a run."""
    with suppress(OSError):
        path.unlink()
        return True
    return False


def pack(state: dict[str, Any]) -> bytes:
    """The content of a checkpoint file."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    return _head(buffer.getbuffer()) + buffer.getbuffer()


def unpack(content: bytes) -> dict[str, Any]:
    """Return the content given to `pack`, tensors on the CPU; only tensors and plain Python values come out of it.

    Raises:
        ValueError: it is damaged, or no checkpoint of this version.
        MemoryError: there is none to read it.
    """
    payload = memoryview(content)[START:]
    if content[:START] != _head(payload):
        raise ValueError("damaged, or not of this version of vitinit: it does not have the digest written with it")
    try:
        state = torch.load(io.BytesIO(payload), map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises errors of many types for what it refuses to load
        if out_of_memory(error):
            raise MemoryError("no memory to read a checkpoint") from None
        raise ValueError(f"cannot be loaded: {error}") from None
    return state


def _head(payload: memoryview) -> bytes:
    return HEADER + hashlib.sha256(payload).hexdigest().encode() + b"\n"
