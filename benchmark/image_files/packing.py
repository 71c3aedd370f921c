"""Writing a packed dataset: what a folder of images and an archive of them have in common."""

from __future__ import annotations

import fcntl
import hashlib
import io
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np

from vitinit.benchmark.files.atomic import sync_folder, write_atomically
from vitinit.benchmark.image_files.images import opened
from vitinit.benchmark.image_files.layout import MANIFEST, packed_files
from vitinit.benchmark.image_files.packed import ENTRY, FORMATS, Manifest, SplitInfo, read_manifest
from vitinit.initializers.errors import VitinitError, plain

AHEAD = 64
"""So many image files are in memory at once."""
ROOM = 2**26
"""Bytes left free on the disk, beside what is written."""


class SplitWriter:
    """One split of a packed dataset while it is written; its images come in any order.

    Args:
        scratch: the folder it is written to.
        name: `train` or `val`.
        count: how many images it has.
    """

    def __init__(self, scratch: Path, name: str, count: int) -> None:
        images_name, self._index_name = packed_files(name)
        self._scratch, self._size = scratch, 0
        self._index = np.zeros(count, ENTRY)
        self._file = (scratch / images_name).open("xb")

    def write(self, place: int, label: int, content: bytes, digest: bytes) -> None:
        """Add the bytes of an image file, with their sha256, as image number `place`."""
        self._index[place] = (self._size, len(content), label, np.frombuffer(digest, np.uint8))
        self._file.write(content)
        self._size += len(content)

    def finish(self) -> SplitInfo:
        """Flush all to the disk, once every image is written."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self.close()
        buffer = io.BytesIO()
        np.save(buffer, self._index, allow_pickle=False)
        write_atomically(self._scratch / self._index_name, buffer.getbuffer())
        digest = hashlib.sha256(buffer.getbuffer()).hexdigest()
        return SplitInfo(images=len(self._index), size=self._size, index_sha256=digest)

    def close(self) -> None:
        """Close its file."""
        self._file.close()


def checked(content: bytes, where: str) -> bytes:
    """The sha256 of an image file, after its pixels have been read: none is to stop a run later.

    Raises:
        VitinitError: it is no image.
    """
    try:
        with opened(io.BytesIO(content), FORMATS) as image:
            image.draft(None, (1, 1))  # a JPEG is then decoded to its end, but at an eighth of its size
            image.load()
    except Exception as error:  # PIL's decoders raise errors of many types
        raise VitinitError(f"cannot use the image {where}: {plain(str(error), 200)}") from error
    return hashlib.sha256(content).digest()


def check_room(folder: Path, needed: int) -> None:
    """Raises a VitinitError where the disk of a folder has not so many bytes and some more."""
    needed += ROOM
    if (free := shutil.disk_usage(folder).free) < needed:
        raise VitinitError(f"{folder}: {needed / 1e9:.1f} GB are needed, {free / 1e9:.1f} GB are free")


def finish(scratch: Path, folder: Path, manifest: Manifest) -> None:
    """Give a packed dataset its manifest and its name: it appears whole or not at all."""
    write_atomically(scratch / MANIFEST, manifest.model_dump_json(indent=1).encode())
    scratch.rename(folder)
    sync_folder(folder.parent)


def refuse_existing(folder: Path) -> None:
    """Never write over what is there.

    Raises:
        VitinitError: something is.
    """
    if (folder / MANIFEST).is_file():
        images = read_manifest(folder).train.images
        raise VitinitError(f"{folder} is prepared already ({images:,} training images); move it away to do it again")
    if folder.exists():
        raise VitinitError(f"{folder} is there and is not prepared: move it away, or choose another --data-dir")


@contextmanager
def scratch_beside(folder: Path) -> Iterator[Path]:
    """An empty folder beside `folder` that one process at a time has; removed with its files, unless it was renamed.

    Raises:
        VitinitError: another process has it.
    """
    scratch = folder.with_name(f".{folder.name}.preparing")
    scratch.mkdir(exist_ok=True)
    descriptor = os.open(scratch, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # it ends with this process, however that ends
        except BlockingIOError:
            raise VitinitError(f"another process is preparing {folder}") from None
        for left in scratch.iterdir():
            left.unlink()
        try:
            yield scratch
        finally:
            with suppress(OSError):
                # Where it was renamed, another process may have made one of that name since.
                if os.path.samestat(os.fstat(descriptor), scratch.stat()):
                    shutil.rmtree(scratch)
    finally:
        os.close(descriptor)
