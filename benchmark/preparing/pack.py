"""Packing the image files of a dataset into a few large files (`benchmark/image_files/packed.py` says which).

A million small files are slow to open on any disk, and slower on a cluster's. The bytes are copied as they are: no
image is resized or compressed again, so every resolution and every crop is made from the original.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from vitinit.benchmark.datasets.dataset import Report
from vitinit.benchmark.datasets.packed import Packed
from vitinit.benchmark.image_files.images import class_folders, image_files
from vitinit.benchmark.image_files.packed import ENTRY, Manifest
from vitinit.benchmark.image_files.packing import check_room, refuse_existing, scratch_beside, write_packed
from vitinit.initializers.errors import VitinitError

SPLITS = ("train", "val")
EXTENSIONS = (".jpeg", ".jpg", ".png")


@dataclass(frozen=True)
class ClassFolders:
    """A folder `train` or `val` as it is found: one folder a class."""

    folder: Path
    classes: list[Path]
    images: int
    size: int
    """Bytes of its image files."""

    def files(self) -> Iterator[tuple[Path, int]]:
        """Path and label of every image; one class at a time is listed."""
        for label, folder in enumerate(self.classes):
            for file in image_files(folder, self.folder, EXTENSIONS):
                yield file, label


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
    try:
        refuse_existing(folder)
        sources = {name: _look(dataset, source.resolve(), name) for name in SPLITS}
        _check(dataset, source, sources, allow_incomplete)
        needed = sum(found.size + found.images * ENTRY.itemsize for found in sources.values())
        folder.parent.mkdir(parents=True, exist_ok=True)
        check_room(folder.parent, needed)
        with scratch_beside(folder) as scratch:
            refuse_existing(folder)  # another process may just have finished
            names = [path.name for path in sources["train"].classes]
            splits = {name: (found.files(), found.images) for name, found in sources.items()}
            return write_packed(scratch, folder, names, splits, threads, report)
    except OSError as error:
        raise VitinitError(f"cannot prepare {folder}: {error}") from error


def _look(dataset: Packed, source: Path, name: str) -> ClassFolders:
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
    return ClassFolders(folder, classes, images, size)


def _check(dataset: Packed, source: Path, sources: dict[str, ClassFolders], allow_incomplete: bool) -> None:
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
