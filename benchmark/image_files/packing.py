"""Writing a packed dataset: what a folder of images and an archive of them have in common."""

from __future__ import annotations

import fcntl
import hashlib
import io
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path

import numpy as np

from vitinit.benchmark.files.atomic import sync_folder, write_atomically
from vitinit.benchmark.image_files.images import no_bombs, opened
from vitinit.benchmark.image_files.layout import MANIFEST, packed_files
from vitinit.benchmark.image_files.packed import ENTRY, FORMATS, Manifest, SplitInfo, read_manifest
from vitinit.initializers.errors import VitinitError, plain

AHEAD = 64
"""So many image files are in memory at once."""
ROOM = 2**26
"""Bytes left free on the disk, beside what is written."""


def write_packed(
    scratch: Path,
    folder: Path,
    classes: Iterable[str],
    splits: Mapping[str, tuple[Iterable[tuple[Path, int]], int]],
    threads: int,
    report: Callable[[int, int], None],
) -> Manifest:
    """Write a packed dataset; it appears whole or not at all.

    Every image is decoded once on the way, so that none stops a run later.

    Args:
        scratch: the folder it is written to.
        folder: the name that it gets at the end.
        classes: names in the order of the labels.
        splits: of `train` and `val`, file and label of each image, and how many there are.
        threads: how many images are decoded at once.
        report: told how many images are written, and of how many.

    Raises:
        VitinitError: a file is no image, or there are more or fewer than were counted.
    """
    done, total, infos = 0, sum(count for _, count in splits.values()), {}

    def tell(written: int) -> None:
        report(done + written, total)

    for name, (images, count) in splits.items():
        infos[name] = _split(scratch, name, images, count, threads, tell)
        done += count
    manifest = Manifest(classes=list(classes), train=infos["train"], val=infos["val"])
    write_atomically(scratch / MANIFEST, manifest.model_dump_json(indent=1).encode())
    scratch.rename(folder)
    sync_folder(folder.parent)
    return manifest


def _split(
    scratch: Path,
    name: str,
    images: Iterable[tuple[Path, int]],
    count: int,
    threads: int,
    report: Callable[[int], None],
) -> SplitInfo:
    """Write one split, as `write_packed` does."""
    images_name, index_name = packed_files(name)
    index, done, size, left = np.zeros(count, ENTRY), 0, 0, iter(images)
    with no_bombs(), ThreadPoolExecutor(threads) as pool, (scratch / images_name).open("xb") as file:
        while batch := list(islice(left, AHEAD)):
            if done + len(batch) > count:
                raise VitinitError(f"{batch[0][0].parent}: files were added meanwhile; try again")
            for (_, label), (content, digest) in zip(batch, pool.map(_read, [path for path, _ in batch]), strict=True):
                index[done] = (size, len(content), label, np.frombuffer(digest, np.uint8))
                file.write(content)
                done, size = done + 1, size + len(content)
            report(done)
        if done < count:
            raise VitinitError(f"{name}: files were removed meanwhile; try again")
        file.flush()
        os.fsync(file.fileno())
    buffer = io.BytesIO()
    np.save(buffer, index, allow_pickle=False)
    write_atomically(scratch / index_name, buffer.getbuffer())
    return SplitInfo(images=count, size=size, index_sha256=hashlib.sha256(buffer.getbuffer()).hexdigest())


def _read(path: Path) -> tuple[bytes, bytes]:
    """The bytes of an image file and their sha256, after its pixels have been read.

    Raises:
        VitinitError: it is no image.
    """
    try:
        content = path.read_bytes()
        with opened(io.BytesIO(content), FORMATS) as image:
            image.draft(None, (1, 1))  # a JPEG is then decoded to its end, but at an eighth of its size
            image.load()
    except Exception as error:  # PIL's decoders raise errors of many types
        raise VitinitError(f"cannot use the image {path}: {plain(str(error), 200)}") from error
    return content, hashlib.sha256(content).digest()


def check_room(folder: Path, needed: int) -> None:
    """Raises a VitinitError where the disk of a folder has not so many bytes and some more."""
    needed += ROOM
    if (free := shutil.disk_usage(folder).free) < needed:
        raise VitinitError(f"{folder}: {needed / 1e9:.1f} GB are needed, {free / 1e9:.1f} GB are free")


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
