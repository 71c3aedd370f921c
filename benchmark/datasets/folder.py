"""Anybody's images, as `folder:PATH`, and ImageNet: one subfolder a class."""

from __future__ import annotations

from collections import Counter
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vitinit.benchmark.datasets.dataset import Dataset
from vitinit.benchmark.files.reading import read
from vitinit.benchmark.image_files.images import below, by_class, stamp
from vitinit.benchmark.image_files.subset import a_fifth, parts
from vitinit.benchmark.spec import DatasetSpec
from vitinit.initializers.errors import VitinitError

if TYPE_CHECKING:
    from vitinit.benchmark.image_files.arrays import Split, Statistics

Listed = tuple[list[Path], np.ndarray]
"""Image files of a split, and their labels."""


class Folder(Dataset):
    """Any folder of images, one subfolder a class."""

    def unavailable(self, spec: DatasetSpec, data_dir: Path) -> str | None:
        """Never: a folder that is not there is the user's mistake, not a dataset to be got."""
        if not spec.root.is_dir():
            raise VitinitError(f"dataset {spec.label}: there is no folder {spec.root}")
        return None

    def open(self, spec: DatasetSpec, data_dir: Path) -> tuple[Split, Split, tuple[str, ...], Statistics | None]:
        """Either layout; without `test`, `val` is the test split; without `train`, a fifth of each class is."""
        train, test, classes = both(spec.root)
        return split(*train), split(*test), classes, None

    def own_files(self, spec: DatasetSpec) -> dict[str, Any]:
        """Stamp of the images, and number of the other files by the ending of their names; empty where it is gone."""
        if not spec.root.is_dir():
            return {}
        files = [file for folder in folders(spec.root) for each in by_class(folder).values() for file in each]
        unread = Counter(file.suffix.lower() for file in sorted({*below(spec.root)} - {*files}))
        return {"stamp": stamp(files, spec.root), "unread": unread or None}


FOLDER = Folder(name="folder", origin="is your own: write folder:PATH")


def folders(root: Path) -> list[Path]:
    """The folders of training and test split, which is `test`, or else `val`, beside `train`; or one folder of both.

    Raises:
        VitinitError: there is neither `test` nor `val` beside `train`.
    """
    if not (root / "train").is_dir():
        return [root]
    for name in ("test", "val"):
        if (root / name).is_dir():
            return [root / "train", root / name]
    raise VitinitError(f"{root} has a folder train, but neither test nor val beside it")


def both(root: Path) -> tuple[Listed, Listed, tuple[str, ...]]:
    """Return the training split, the test split, and the classes; of one folder a fifth of each class is for testing.

    Raises:
        VitinitError: the folder is not laid out as it must be, or the splits have different classes.
    """
    train, *test = folders(root)
    (files, labels), classes = _listed(train)
    if not test:
        first, second = (([files[number] for number in part], labels[part]) for part in a_fifth(labels, classes))
        return first, second, classes
    second, others = _listed(*test)
    if classes != others:
        raise VitinitError(
            f"{root}: classes differ, {len(classes)} in train and {len(others)} in {test[0].name}; "
            f"only in one of them: {', '.join(sorted({*classes} ^ {*others}))}"
        )
    return (files, labels), second, classes


def split(files: list[Path], labels: np.ndarray) -> Split:
    """Return a split of image files."""
    import torch

    from vitinit.benchmark.image_files.arrays import encoded

    return encoded(torch.from_numpy(labels), lambda number: read(files[number], links=True), lambda n: str(files[n]))


def in_both(spec: DatasetSpec) -> int:
    """Number of images of the split that accuracy is measured on that are trained on, too, byte for byte.

    All images that may be trained on count, whatever `train_size`.
    """
    (train, labels), (test, _), classes = both(spec.root)
    whole = spec.model_copy(update={"train_size": None, "train_draw": "fixed"})
    chosen, val = ([train[number] for number in numbers] for numbers in parts(labels, whole, len(classes), 0))
    listed = [chosen, val if spec.evaluate_on == "val" else test]
    sizes = [{file.stat().st_size for file in files} for files in listed]
    # nobody reads a file whose size no other has
    trained, measured = (
        [sha256(read(file, links=True)).digest() for file in files if file.stat().st_size in sizes[0] & sizes[1]]
        for files in listed
    )
    return sum(map({*trained}.__contains__, measured))


def _listed(folder: Path) -> tuple[Listed, tuple[str, ...]]:
    classes = by_class(folder)
    if len(classes) < 2:
        raise VitinitError(
            f"{folder}: found {len(classes)} class folders, at least 2 are needed, as in CLASS/image.png"
        )
    files = [file for each in classes.values() for file in each]
    return (files, np.repeat(np.arange(len(classes)), [len(each) for each in classes.values()])), tuple(classes)
