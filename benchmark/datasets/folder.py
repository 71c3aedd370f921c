"""Anybody's images, as `folder:PATH`, and ImageNet: one subfolder a class."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

from vitinit.benchmark.datasets.dataset import Dataset
from vitinit.benchmark.image_files.images import class_folders, image_files, read_image
from vitinit.benchmark.spec import DatasetSpec
from vitinit.initializers.errors import VitinitError, plain

if TYPE_CHECKING:
    from PIL import Image

    from vitinit.benchmark.image_files.arrays import Source, Statistics


class Folder(Dataset):
    """Any folder of images, one subfolder a class."""

    def unavailable(self, spec: DatasetSpec, data_dir: Path) -> str | None:
        """Never: a folder that is not there is the user's mistake, not a dataset to be got."""
        try:
            is_there = Path(str(spec.path)).is_dir()
        except OSError:  # a name that is too long, or a folder that may not be looked into
            is_there = False
        if not is_there:
            raise VitinitError(f"dataset {spec.label}: there is no folder {spec.path}")
        return None

    def open(self, spec: DatasetSpec, data_dir: Path) -> tuple[Source, Source, tuple[str, ...], Statistics | None]:
        """Either layout; without `test`, `val` is the test split; without `train`, a fifth of each class is."""
        train, test = splits(Path(str(spec.path)).absolute())
        return files_by_class(train), files_by_class(test), tuple(train), None


FOLDER = Folder(name="folder", origin="is your own: write folder:PATH")


def held_out(root: Path) -> str | None:
    """Name of the folder beside `train` that is the test split: `test`, or `val` where there is no `test`."""
    if not (root / "train").is_dir():
        return None
    return next((name for name in ("test", "val") if (root / name).is_dir()), None)


Files = dict[str, list[Path]]
"""The image files of each class, both in sorted order."""


def splits(root: Path, other: str | None = None) -> tuple[Files, Files]:
    """The files of training and test split, which is in the folder `other` beside `train`; default: `held_out`.

    Raises:
        VitinitError: the folder is not laid out as it must be.
    """
    if (root / "train").is_dir():
        other = other or held_out(root)
        if other is None:
            raise VitinitError(f"{root} has a folder train, but neither test nor val beside it")
        train, test = _files(root / "train"), _files(root / other)
        if train.keys() != test.keys():
            raise VitinitError(
                f"{root}: classes differ, {len(train)} in train and {len(test)} in {other}; "
                f"only in one of them: {', '.join(sorted(train.keys() ^ test.keys()))}"
            )
    else:
        train, test = _a_fifth_held_out(_files(root))
    if len(train) < 2:
        raise VitinitError(f"{root}: found {len(train)} class folders, at least 2 are needed, as in CLASS/image.png")
    return train, test


def _files(folder: Path) -> Files:
    return {name: image_files(entry) for name, entry in class_folders(folder).items()}


def _a_fifth_held_out(classes: Files) -> tuple[Files, Files]:
    from vitinit.benchmark.image_files.subset import held_out_fifth

    train, test = {}, {}
    for name, files in classes.items():
        if len(files) < 2:
            raise VitinitError(f"{files[0].parent} has one image; training and test split need one each")
        train[name], test[name] = held_out_fifth(files)
    return train, test


def files_by_class(classes: Files) -> Source:
    """A split of image files, each read when it is asked for."""
    import torch

    from vitinit.benchmark.image_files.arrays import Source

    files = [file for each in classes.values() for file in each]
    labels = torch.tensor([label for label, each in enumerate(classes.values()) for _ in each])

    def image(number: int) -> Image.Image:
        try:
            return read_image(files[number])
        except Exception as error:  # PIL's decoders raise errors of many types on damaged files
            raise VitinitError(f"cannot use the image {files[number]}: {plain(str(error))}") from error

    return Source(labels, image, content=lambda number: hashlib.sha256(files[number].read_bytes()).digest())
