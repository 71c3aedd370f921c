"""Anybody's images, as `folder:PATH`, and ImageNet: one subfolder a class."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from vitinit.benchmark.datasets.dataset import Dataset
from vitinit.benchmark.image_files.images import by_class
from vitinit.benchmark.spec import DatasetSpec
from vitinit.initializers.errors import VitinitError

if TYPE_CHECKING:
    from vitinit.benchmark.image_files.arrays import Split, Statistics


class Folder(Dataset):
    """Any folder of images, one subfolder a class."""

    def unavailable(self, spec: DatasetSpec, data_dir: Path) -> str | None:
        """Never: a folder that is not there is the user's mistake, not a dataset to be got."""
        if not Path(str(spec.path)).is_dir():
            raise VitinitError(f"dataset {spec.label}: there is no folder {spec.path}")
        return None

    def open(self, spec: DatasetSpec, data_dir: Path) -> tuple[Split, Split, tuple[str, ...], Statistics | None]:
        """Either layout; without `test`, `val` is the test split; without `train`, a fifth of each class is."""
        train, *test = folders(Path(str(spec.path)))
        if test:
            return *splits(train, *test), None
        split, classes = _split(train)
        return *split.a_fifth_held_out(classes), classes, None


FOLDER = Folder(name="folder", origin="is your own: write folder:PATH")


def folders(root: Path) -> list[Path]:
    """The folders of training and test split, which is `test`, or else `val`, beside `train`; or one folder of both.

    Raises:
        VitinitError: there is neither `test` nor `val` beside `train`.
    """
    root = root.absolute()
    if not (root / "train").is_dir():
        return [root]
    for name in ("test", "val"):
        if (root / name).is_dir():
            return [root / "train", root / name]
    raise VitinitError(f"{root} has a folder train, but neither test nor val beside it")


def in_both(root: Path) -> int:
    """Number of image files of the test split that are in the training split, too, byte for byte; 0 of one folder."""
    splits = folders(root)
    if len(splits) == 1:
        return 0
    listed = [[file for each in by_class(split).values() for file in each] for split in splits]
    sizes = [{file.stat().st_size for file in files} for files in listed]
    # nobody reads a file whose size no other has
    train, test = (
        [sha256(file.read_bytes()).digest() for file in files if file.stat().st_size in sizes[0] & sizes[1]]
        for files in listed
    )
    return sum(map({*train}.__contains__, test))


def splits(train: Path, test: Path) -> tuple[Split, Split, tuple[str, ...]]:
    """The image files in the folders of both splits, and the classes.

    Raises:
        VitinitError: the folders have different classes.
    """
    (first, classes), (second, others) = _split(train), _split(test)
    if classes != others:
        raise VitinitError(
            f"{train.parent}: classes differ, {len(classes)} in train and {len(others)} in {test.name}; "
            f"only in one of them: {', '.join(sorted({*classes} ^ {*others}))}"
        )
    return first, second, classes


def _split(folder: Path) -> tuple[Split, tuple[str, ...]]:
    import torch

    from vitinit.benchmark.image_files.arrays import encoded

    classes = by_class(folder)
    if len(classes) < 2:
        raise VitinitError(
            f"{folder}: found {len(classes)} class folders, at least 2 are needed, as in CLASS/image.png"
        )
    files = [file for each in classes.values() for file in each]
    labels = torch.tensor([label for label, each in enumerate(classes.values()) for _ in each])
    return encoded(labels, lambda number: files[number].read_bytes(), lambda number: str(files[number])), tuple(classes)
