"""Anybody's images, as `folder:PATH`, and ImageNet: one subfolder a class."""

from __future__ import annotations

import hashlib
import os
import unicodedata
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vitinit.benchmark.datasets.registry import IMAGENET_STATISTICS, Dataset, Opened, a_fifth, duplicates, train_and_val
from vitinit.benchmark.files.reading import read
from vitinit.benchmark.spec import DatasetSpec
from vitinit.initializers.errors import VitinitError, os_errors

if TYPE_CHECKING:
    from vitinit.benchmark.image_files.arrays import Split

EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".pgm", ".bmp", ".tif", ".tiff", ".webp")
"""Files of a folder dataset that count as images: those of `torchvision.datasets.ImageFolder`."""
Listed = tuple[np.ndarray, np.ndarray]
"""Paths of the image files of a split, and their labels."""


class Folder(Dataset):
    """Any folder of images, one subfolder a class."""

    def unavailable(self, spec: DatasetSpec, data_dir: Path) -> str | None:
        """Never: a folder that is not there is the user's mistake, not a dataset to be got."""
        if not spec.root.is_dir():
            raise VitinitError(f"dataset {spec.label}: there is no folder {spec.root}")
        return None

    def open(self, spec: DatasetSpec, data_dir: Path) -> Opened:
        """Either layout; without `test`, `val` is the test split; without `train`, a fifth of each class is."""
        train, test, classes = both(spec.root)
        return Opened(split(*train), split(*test), classes)

    def own_files(self, spec: DatasetSpec) -> dict[str, Any]:
        """Stamp of the images, and number of the other files by the ending of their names; empty where it is gone."""
        if not spec.root.is_dir():
            return {}
        (train, _), (test, _), _ = both(spec.root)
        files = sorted([*train, *test])
        unread = Counter(file.suffix.lower() or file.name for file in sorted({*below(spec.root)} - {*files}))
        return {"stamp": stamp(files, spec.root), "unread": unread or None}


FOLDER = Folder(name="folder", origin="is your own: write folder:PATH")


def both(root: Path) -> tuple[Listed, Listed, tuple[str, ...]]:
    """Return the training split, the test split, and the classes; of one folder a fifth of each class is for testing.

    Raises:
        VitinitError: the folder is not laid out as it must be, or the splits have different classes.
    """
    folder = root / "train" if (root / "train").is_dir() else root
    (files, labels), classes = _listed(folder)
    if folder == root:
        if all(name.lower().startswith(("train", "test", "val")) for name in classes):
            raise VitinitError(
                f"{root}: {', '.join(classes)} would be its classes; splits are called train, and test or val"
            )
        first, second = ((files[numbers], labels[numbers]) for numbers in a_fifth(labels, classes))
        return first, second, classes
    name = next((name for name in ("test", "val") if (root / name).is_dir()), None)
    if name is None:
        raise VitinitError(f"{root} has a folder train, but neither test nor val beside it")
    second, others = _listed(root / name)
    if classes != others:
        raise VitinitError(
            f"{root}: classes differ, {len(classes)} in train and {len(others)} in {name}; "
            f"only in one of them: {', '.join(sorted({*classes} ^ {*others}))}"
        )
    return (files, labels), second, classes


def split(files: np.ndarray, labels: np.ndarray) -> Split:
    """Return a split of image files."""
    import torch

    from vitinit.benchmark.image_files.arrays import encoded

    return encoded(torch.from_numpy(labels), lambda number: read(files[number], links=True), lambda n: str(files[n]))


def duplicates_in(spec: DatasetSpec) -> list[str]:
    """Return lines on images that are there more than once, byte for byte.

    All images that may be trained on count, whatever `train_size`.
    """
    (train, labels), test, classes = both(spec.root)
    whole = spec.model_copy(update={"train_size": None, "train_draw": "fixed"})
    chosen, val = ((train[numbers], labels[numbers]) for numbers in train_and_val(labels, whole, len(classes), 0))
    splits = [chosen, val if spec.evaluate_on == "val" else test]
    sizes = Counter(file.stat().st_size for files, _ in splits for file in files)

    def content(file: Path) -> int:
        # nobody reads a file whose size no other has
        return hash(read(file, links=True) if sizes[file.stat().st_size] > 1 else file)

    return duplicates(*([(content(file), label) for file, label in zip(*split, strict=True)] for split in splits))


def _listed(folder: Path) -> tuple[Listed, tuple[str, ...]]:
    """Return the images of each class, in its subfolders too, in the order of the names (Unicode NFC) of both."""
    by_class = {}
    for entry in filter(Path.is_dir, folder.glob("[!.]*")):
        name = unicodedata.normalize("NFC", entry.name)
        if name in by_class:
            raise VitinitError(f"{folder}: two folders of class {name}, whose letters are encoded in two ways")
        by_class[name] = [file for file in below(entry) if file.suffix.lower() in EXTENSIONS]
        if not by_class[name]:
            raise VitinitError(f"the class folder {entry} has no images ({', '.join(EXTENSIONS)})")
    if len(by_class) < 2:
        raise VitinitError(
            f"{folder}: found {len(by_class)} class folders, at least 2 are needed, as in CLASS/image.png"
        )
    classes = tuple(sorted(by_class))
    files = np.array([file for name in classes for file in by_class[name]], object)
    return (files, np.repeat(np.arange(len(classes)), [len(by_class[name]) for name in classes])), classes


def below(folder: Path) -> list[Path]:
    """Return the files below a folder in sorted order, without names that begin with a dot; links are followed."""

    def stop(error: OSError) -> None:
        raise VitinitError(f"cannot read {error.filename}: {error.strerror}")

    paths = []
    for home, folders, files in os.walk(folder, onerror=stop, followlinks=True):
        folders[:] = [name for name in folders if name[0] != "."]
        if Path(home).is_symlink() and os.path.realpath(home) in map(os.path.realpath, Path(home).parents):
            raise VitinitError(f"{home}: is a link that leads back to a folder above it")
        paths += [Path(home, name) for name in files if name[0] != "."]
    return sorted(paths)


def stamp(files: Iterable[Path], root: Path) -> str:
    """Return a hash of names, sizes and times of files: while it stays, nobody has to read them again."""
    digest = hashlib.sha256()
    for file in files:
        with os_errors(f"cannot read {file}"):
            status = file.stat()
        line = f"{os.path.relpath(file, root)}\0{status.st_size}\0{status.st_mtime_ns}\0"
        digest.update(line.encode(errors="surrogateescape"))
    return digest.hexdigest()


class ImageNet(Dataset):
    """ImageNet-1K (ILSVRC2012); accuracy is measured on its validation images, whose labels are public.

    Its authors give it to who asks, as two archives; `torchvision.datasets.ImageNet` unpacks them.
    """

    streamed = True
    mend = "; a part of it is a dataset of its own: folder:PATH"

    def open(self, spec: DatasetSpec, data_dir: Path) -> Opened:
        """Lists the files. The checksum covers how many there are of each class, and no contents."""
        from vitinit.benchmark.image_files.arrays import Split

        train, test, classes = both(data_dir / self.name)
        # of a million files nobody reads the contents at each start
        first, second = (replace(split(*listed), digest=Split.digest) for listed in (train, test))
        return Opened(first, second, classes, self.statistics)


IMAGENET = ImageNet(
    name="imagenet",
    images=(1_281_167, 50_000),
    classes=1000,
    statistics=IMAGENET_STATISTICS,
    files=("imagenet/train", "imagenet/val"),
    origin="has to be asked for at image-net.org, and torchvision.datasets.ImageNet unpacks it",
)
