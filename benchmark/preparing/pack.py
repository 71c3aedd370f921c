"""Packing the image files of a dataset into a few large files (`benchmark/image_files/packed.py` says which).

A million small files are slow to open on any disk, and slower on a cluster's. The bytes are copied as they are: no
image is resized or compressed again, so every resolution and every crop is made from the original.
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import os
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmark.datasets.packed import Packed
from benchmark.files.atomic import sync_folder, write_atomically
from benchmark.image_files.images import class_folders, image_files, no_bombs, opened
from benchmark.image_files.layout import MANIFEST, packed_files
from benchmark.image_files.packed import ENTRY, FORMATS, Manifest, SplitInfo, read_manifest
from initializers.errors import VitinitError

SPLITS = ("train", "val")
EXTENSIONS = (".jpeg", ".jpg", ".png")
AHEAD = 64
"""So many image files are in memory at once."""
ROOM = 2**26
"""Bytes left free on the disk, beside what is written."""

Report = Callable[[int, int], None]


@dataclass(frozen=True)
class Source:
    """A folder `train` or `val` as it is found: one folder a class."""

    folder: Path
    classes: list[Path]
    images: int
    size: int
    """Bytes of its image files."""

    def files(self) -> Iterator[tuple[int, Path]]:
        """Label and path of every image; one class at a time is listed."""
        for label, folder in enumerate(self.classes):
            for file in image_files(folder, self.folder, EXTENSIONS):
                yield label, file


def prepare(
    dataset: Packed, source: Path, folder: Path, allow_incomplete: bool, report: Report, threads: int
) -> Manifest:
    """Pack `source/train/CLASS/*` and `source/val/CLASS/*` into `folder`.

    Every image is decoded once on the way, so that none stops a run later. `folder` appears whole or not at all; what
    an interrupted preparation leaves beside it is removed by the next one.

    Args:
        dataset: what it is to be.
        source: where the image files are; only read.
        folder: what is made, for example `data/imagenet`.
        allow_incomplete: take another number of images than the dataset has; of its classes none may be missing.
        report: told how many images are packed, and of how many.
        threads: how many images are decoded at once.

    Raises:
        VitinitError: `folder` is there already, or is being prepared; the layout, the classes or the number of images
            are not the dataset's; a file is no image; or the disk has no room.
    """
    _refuse_existing(folder)
    try:
        sources = {name: _look(dataset, source.resolve(), name) for name in SPLITS}
        _check(dataset, source, sources, allow_incomplete)
        folder.parent.mkdir(parents=True, exist_ok=True)
        needed = sum(found.size + found.images * ENTRY.itemsize for found in sources.values()) + ROOM
        if (free := shutil.disk_usage(folder.parent).free) < needed:
            raise VitinitError(f"{folder.parent}: {needed / 1e9:.1f} GB are needed, {free / 1e9:.1f} GB are free")
        total, done = sum(found.images for found in sources.values()), 0
        with scratch_beside(folder) as scratch:
            _refuse_existing(folder)  # another process may just have finished
            infos = {}
            for name, found in sources.items():
                infos[name] = _pack(name, found, scratch, threads, lambda images: report(done + images, total))  # noqa: B023
                done += found.images
            names = [path.name for path in sources["train"].classes]
            manifest = Manifest(classes=names, train=infos["train"], val=infos["val"])
            write_atomically(scratch / MANIFEST, manifest.model_dump_json(indent=1).encode())
            scratch.rename(folder)
        sync_folder(folder.parent)
    except OSError as error:
        raise VitinitError(f"cannot prepare {folder}: {error}") from error
    return manifest


def _refuse_existing(folder: Path) -> None:
    if (folder / MANIFEST).is_file():
        images = read_manifest(folder).train.images
        raise VitinitError(f"{folder} is prepared already ({images:,} training images); move it away to do it again")
    if folder.exists():
        raise VitinitError(f"{folder} is there and is not prepared: move it away, or choose another --data-dir")


def _look(dataset: Packed, source: Path, name: str) -> Source:
    folder = (source / name).resolve()  # a link that the user has put there
    if not folder.is_dir():
        raise VitinitError(
            f"{source} has no folder {name}: it must hold train/CLASS/*.JPEG and val/CLASS/*.JPEG{dataset.hint(source)}"
        )
    classes, images, size = class_folders(folder), 0, 0
    for class_dir in classes:
        with os.scandir(class_dir) as entries:
            sizes = [
                entry.stat().st_size
                for entry in entries
                if entry.name[0] != "." and Path(entry.name).suffix.lower() in EXTENSIONS
            ]
        images, size = images + len(sizes), size + sum(sizes)
    return Source(folder, classes, images, size)


def _check(dataset: Packed, source: Path, sources: dict[str, Source], allow_incomplete: bool) -> None:
    names = {name: {path.name for path in found.classes} for name, found in sources.items()}
    if alone := sorted(names["train"] ^ names["val"]):
        more = ", ..." if len(alone) > 5 else ""
        raise VitinitError(f"{source}: classes that only one of train and val has: {', '.join(alone[:5])}{more}")
    if len(names["train"]) != dataset.classes:
        found_classes = f"found {len(names['train'])} class folders"
        raise VitinitError(f"{source}: {found_classes}, {dataset.title} has {dataset.classes}")
    for found, images in zip(sources.values(), dataset.images, strict=True):
        if found.images != images and not allow_incomplete:
            raise VitinitError(
                f"{found.folder}: found {found.images:,} images, {dataset.title} has {images:,}; "
                "--allow-incomplete takes what is there"
            )


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
        except BaseException:
            with suppress(OSError):
                shutil.rmtree(scratch)
            raise
    finally:
        os.close(descriptor)


def _pack(name: str, found: Source, scratch: Path, threads: int, report: Callable[[int], None]) -> SplitInfo:
    images_name, index_name = packed_files(name)
    index = np.zeros(found.images, ENTRY)
    size = count = 0
    with no_bombs(), ThreadPoolExecutor(threads) as pool, (scratch / images_name).open("xb") as file:
        for batch in _batches(found.files(), AHEAD):
            for (label, _), (content, digest) in zip(batch, pool.map(_checked, [f for _, f in batch]), strict=True):
                if count == found.images:
                    raise VitinitError(f"{found.folder}: files were added meanwhile; try again")
                index[count] = (size, len(content), label, np.frombuffer(digest, np.uint8))
                file.write(content)
                size, count = size + len(content), count + 1
            report(count)
        file.flush()
        os.fsync(file.fileno())
    if count < found.images:
        raise VitinitError(f"{found.folder}: files were removed meanwhile; try again")
    buffer = io.BytesIO()
    np.save(buffer, index, allow_pickle=False)
    write_atomically(scratch / index_name, buffer.getbuffer())
    return SplitInfo(images=count, size=size, index_sha256=hashlib.sha256(buffer.getbuffer()).hexdigest())


def _batches(files: Iterator[tuple[int, Path]], size: int) -> Iterator[list[tuple[int, Path]]]:
    batch = []
    for file in files:
        batch.append(file)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch


def _checked(path: Path) -> tuple[bytes, bytes]:
    """The bytes of an image file and their sha256, after its pixels have been read."""
    try:
        content = path.read_bytes()
        with opened(io.BytesIO(content), FORMATS) as image:
            image.draft(None, (1, 1))  # a JPEG is then decoded to its end, but at an eighth of its size
            image.load()
    except Exception as error:  # PIL's decoders raise errors of many types
        raise VitinitError(f"cannot use the image {path}: {error}") from error
    return content, hashlib.sha256(content).digest()
