"""Datasets as uint8 tensors in memory: digits, Pathfinder, CIFAR, SVHN, any folder of images; ImageNet, on the disk.

Everything here is a function of the spec and the files alone: splits and subsets are the same in every run, at every
seed, and no global random state is read or changed.
"""

from __future__ import annotations

import hashlib
import socket
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageOps

from benchmark.datasets import pathfinder
from benchmark.datasets.files import (
    DRAWN_NAMES,
    FILE_NAMES,
    IMAGES,
    MD5,
    NAMES,
    PACKED_NAMES,
    data_dir,
    listed,
    unavailable,
)
from benchmark.datasets.subset import parts
from benchmark.image_files.images import IMAGE_FORMATS, class_folders, image_files, no_bombs, opened
from benchmark.image_files.packed import PackedData, load_packed
from benchmark.spec import DatasetSpec
from initializers.errors import VitinitError, unknown_name

__all__ = [
    "FILE_NAMES",
    "NAMES",
    "Data",
    "Source",
    "Sources",
    "Split",
    "data_dir",
    "download",
    "load",
    "sources",
    "unavailable",
]

# torchvision and scikit-learn take seconds to import, so only the functions that need them do.

STATISTICS: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "cifar10": ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
    "cifar100": ((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
    "svhn": ((0.4376821, 0.4437697, 0.47280442), (0.19803012, 0.20101562, 0.19703614)),
}
"""Customary mean and std of the training pixels; those of the other datasets are computed."""

DOWNLOAD_TIMEOUT_S = 10.0
"""Seconds a server may stay silent before a download is given up."""


@dataclass(frozen=True)
class Split:
    """Images and their labels.

    Attributes:
        images: uint8, N x 3 x S x S, RGB.
        labels: int64, N, an index into `Data.classes`.
    """

    images: torch.Tensor
    labels: torch.Tensor


@dataclass(frozen=True)
class Data:
    """A dataset ready for training.

    Attributes:
        train: The training split, or the part of it that the spec asks for.
        held_out: What accuracy is measured on: the whole test split, or the validation part of the training split.
        classes: The class names in the order of the labels.
        mean: Mean of the whole training split per channel, pixels in 0..1.
        std: Standard deviation of the whole training split per channel, pixels in 0..1; never 0.
        checksum: sha256 (hex) over pixels and labels of `train` and `held_out` as they are here.
    """

    train: Split
    held_out: Split
    classes: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    checksum: str

    @property
    def image_size(self) -> int:
        """Side of the images in pixels."""
        return self.train.images.shape[-1]


@dataclass(frozen=True)
class Source:
    """A split whose images have not been brought to their size yet.

    Attributes:
        labels: int64, N.
        images: Makes some of its images, by number: uint8, RGB, 3 x S x S each. Safe to call from several threads,
            within `no_bombs`.
    """

    labels: torch.Tensor
    images: Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Sources:
    """A dataset that is not decoded yet.

    Attributes:
        train: The whole training split.
        test: The test split.
        classes: The class names in the order of the labels.
        statistics: Mean and std of each channel, pixels in 0..1; None where the whole training split, decoded, has to
            tell (`statistics`).
        chosen: Numbers of the training images that the spec asks for, ascending.
        val: Numbers of the training images that the spec holds out for validation, ascending.
    """

    train: Source
    test: Source
    classes: tuple[str, ...]
    statistics: tuple[tuple[float, ...], tuple[float, ...]] | None
    chosen: torch.Tensor
    val: torch.Tensor


def load(spec: DatasetSpec, image_size: int, data_dir: Path, draw: int = 0) -> Data | PackedData:
    """Reads a dataset, takes the part the spec asks for and brings the images to `image_size`.

    A prepared dataset (imagenet) is opened only: its images are decoded and cropped when they are used.

    Args:
        spec: Which dataset, and how much of its training split.
        image_size: Side of the images in pixels. Others are resized (bilinear, antialiased); the images of a folder
            have their shorter side resized and are cropped at the centre.
        data_dir: Where the files of cifar10, cifar100 and svhn are, and the folder of imagenet.
        draw: Which subset, where the spec redraws it by seed.

    Raises:
        VitinitError: The dataset is unknown, missing or damaged, a folder is not laid out as one of the two layouts
            (PATH/train/CLASS and PATH/test/CLASS, or PATH/CLASS), an image cannot be used, or `train_size` and
            `val_size` do not fit the training split.
    """
    if spec.name in PACKED_NAMES:
        if reason := unavailable(spec, data_dir):
            raise VitinitError(reason)
        return load_packed(spec, image_size, data_dir / spec.name, draw)
    source = sources(spec, image_size, data_dir, draw)
    with no_bombs():
        if source.statistics is None:
            images = source.train.images(torch.arange(len(source.train.labels)))
            mean, std = statistics(levels(images))
            held_out = Split(images[source.val], source.train.labels[source.val])
            images = images if len(source.chosen) == len(images) else images[source.chosen]
        else:
            mean, std = source.statistics
            held_out = Split(source.train.images(source.val), source.train.labels[source.val])
            images = source.train.images(source.chosen)
        train = Split(images, source.train.labels[source.chosen])
        if spec.evaluate_on == "test":
            held_out = Split(source.test.images(torch.arange(len(source.test.labels))), source.test.labels)
    checksum = hashlib.sha256()
    for tensor in (train.images, train.labels, held_out.images, held_out.labels):
        checksum.update(tensor.numpy().data)
    return Data(train, held_out, source.classes, mean, std, checksum.hexdigest())


def sources(spec: DatasetSpec, image_size: int, data_dir: Path, draw: int = 0) -> Sources:
    """Opens a dataset whose images are a function of the spec alone, and decodes none of them.

    Args:
        spec: Any dataset but a prepared one (imagenet).
        image_size: Side that its images will have, in pixels.
        data_dir: Where the files of cifar10, cifar100 and svhn are.
        draw: Which subset, where the spec redraws it by seed.

    Raises:
        VitinitError: As `load`, but for what only decoding tells.
    """
    if reason := unavailable(spec, data_dir):
        raise VitinitError(reason)
    known = STATISTICS.get(spec.name)
    try:
        if spec.path is not None:
            train, test, classes = _folder(Path(spec.path), image_size)
        else:
            splits = _splits(spec.name, data_dir)
            train, test = (_in_memory(split, image_size) for split in splits[:2])
            classes, known = splits[2], known or statistics(levels(splits[0].images))
    except OSError as error:
        raise VitinitError(f"dataset {spec.label}: {error}") from error
    chosen, val = (torch.from_numpy(part) for part in parts(train.labels.numpy(), spec, len(classes), draw))
    return Sources(train, test, classes, known, chosen, val)


def download(name: str, data_dir: Path) -> None:
    """Downloads the files of a dataset with torchvision and checks their md5; files already there stay as they are.

    Raises:
        VitinitError: The dataset is unknown or needs no download, a file that is there is damaged, or the download
            failed; the message then says which files to put where.
    """
    if name not in NAMES:
        raise unknown_name("dataset", name, NAMES)
    if name not in FILE_NAMES:
        why = "comes with scikit-learn" if name == "digits" else "is your own: write folder:PATH"
        if name in DRAWN_NAMES:
            why = "is drawn whenever it is used"
        elif name in PACKED_NAMES:
            why = f"has to be asked for at image-net.org; then run 'vitinit data prepare {name} --from DIR'"
        raise VitinitError(f"there is nothing to download for {name}, it {why}; to download: {', '.join(FILE_NAMES)}")
    expected = MD5[name]
    missing = [file for file in expected if not (data_dir / file).is_file()]
    _check_md5(name, data_dir, [file for file in expected if file not in missing])
    if not missing:
        return
    timeout_before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(DOWNLOAD_TIMEOUT_S)
    try:
        data_dir.mkdir(parents=True, exist_ok=True)
        # An interrupted download must leave no half a file under a real name.
        with tempfile.TemporaryDirectory(prefix=".download-", dir=data_dir) as scratch:
            _torchvision(name, Path(scratch), download=True)
            for file in missing:
                (data_dir / file).parent.mkdir(exist_ok=True)
                (Path(scratch) / file).replace(data_dir / file)
    except (OSError, RuntimeError, HTTPException, EOFError) as error:
        message = " ".join(str(error).split()) or type(error).__name__
        raise VitinitError(f"cannot download {name} ({message}); put {listed(missing)} into {data_dir}") from error
    finally:
        socket.setdefaulttimeout(timeout_before)


def _check_md5(name: str, data_dir: Path, files: list[str]) -> None:
    """Refuses a damaged file, before anything in it is unpickled."""
    expected = MD5[name]
    for path, md5 in ((data_dir / file, expected[file]) for file in files):
        with path.open("rb") as stream:
            digest = hashlib.md5(usedforsecurity=False)
            while block := stream.read(2**20):
                digest.update(block)
            found = digest.hexdigest()
        if found != md5:
            raise VitinitError(
                f"{path} is damaged: md5 {found} ({path.stat().st_size} bytes), expected md5 {md5}; "
                f"move it away and run 'vitinit data get {name}'"
            )


def _torchvision(name: str, root: Path, download: bool = False) -> tuple[Any, Any]:
    """The training and the test dataset of torchvision."""
    from torchvision.datasets import CIFAR10, CIFAR100, SVHN

    if name == "svhn":
        return SVHN(root, "train", download=download), SVHN(root, "test", download=download)
    cifar = {"cifar10": CIFAR10, "cifar100": CIFAR100}[name]
    return cifar(root, train=True, download=download), cifar(root, train=False)


def _splits(name: str, data_dir: Path) -> tuple[Split, Split, tuple[str, ...]]:
    """Training split, test split and classes of a dataset that is the same for everybody."""
    if name in DRAWN_NAMES:
        return _drawn(name)
    return _digits() if name == "digits" else _from_files(name, data_dir)


def _from_files(name: str, data_dir: Path) -> tuple[Split, Split, tuple[str, ...]]:
    _check_md5(name, data_dir, list(MD5[name]))
    train, test = _torchvision(name, data_dir)
    if name == "svhn":
        splits = [Split(torch.from_numpy(split.data), torch.from_numpy(split.labels)) for split in (train, test)]
        return splits[0], splits[1], tuple("0123456789")
    splits = [
        Split(torch.from_numpy(split.data).permute(0, 3, 1, 2), torch.tensor(split.targets)) for split in (train, test)
    ]
    return splits[0], splits[1], tuple(train.classes)


def _digits() -> tuple[Split, Split, tuple[str, ...]]:
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    digits = load_digits()
    grey = np.round(digits.images * (255 / 16)).astype(np.uint8)
    rgb = np.repeat(grey[:, None], 3, axis=1)
    parts = train_test_split(rgb, digits.target, test_size=360, stratify=digits.target, random_state=0)
    train_images, test_images, train_labels, test_labels = (torch.from_numpy(part) for part in parts)
    return Split(train_images, train_labels.long()), Split(test_images, test_labels.long()), tuple("0123456789")


def _drawn(name: str) -> tuple[Split, Split, tuple[str, ...]]:
    train, test = IMAGES[name]
    grey, labels = (torch.from_numpy(part) for part in pathfinder.generate(name, train + test))
    rgb = grey[:, None].expand(-1, 3, -1, -1)
    return Split(rgb[:train], labels[:train]), Split(rgb[train:], labels[train:]), pathfinder.CLASSES


def _folder(root: Path, image_size: int) -> tuple[Source, Source, tuple[str, ...]]:
    """Either layout; without a folder `train`, a fifth of each class is the test split."""
    root = root.resolve()
    if (root / "train").is_dir():
        held_out = next((name for name in ("test", "val") if (root / name).is_dir()), None)
        if held_out is None:
            raise VitinitError(f"{root} has a folder train, but neither test nor val beside it")
        train, test = _image_files(root / "train", root), _image_files(root / held_out, root)
        if train.keys() != test.keys():
            raise VitinitError(
                f"{root}: class count mismatch, {len(train)} in train and {len(test)} in {held_out}; "
                f"only in one of them: {', '.join(sorted(train.keys() ^ test.keys()))}"
            )
    else:
        train, test = _held_out(_image_files(root, root))
    if len(train) < 2:
        raise VitinitError(f"{root}: found {len(train)} class folders, at least 2 are needed, as in CLASS/image.png")
    return _on_disk(train, image_size), _on_disk(test, image_size), tuple(train)


def _held_out(classes: dict[str, list[Path]]) -> tuple[dict[str, list[Path]], dict[str, list[Path]]]:
    """Training and test files, the same fifth of each class always."""
    from sklearn.model_selection import train_test_split

    train, test = {}, {}
    for name, files in classes.items():
        if len(files) < 2:
            raise VitinitError(f"{files[0].parent} has one image; training and test split need one each")
        kept, taken = train_test_split(files, test_size=max(1, round(len(files) / 5)), random_state=0)
        train[name], test[name] = sorted(kept), sorted(taken)
    return train, test


def _image_files(folder: Path, root: Path) -> dict[str, list[Path]]:
    """The image files of each class, both in sorted order."""
    return {entry.name: image_files(entry, root, IMAGE_FORMATS) for entry in class_folders(folder)}


def _on_disk(classes: dict[str, list[Path]], image_size: int) -> Source:
    labels = [label for label, files in enumerate(classes.values()) for _ in files]
    files = [path for files in classes.values() for path in files]

    def images(numbers: torch.Tensor) -> torch.Tensor:
        decoded = torch.empty(len(numbers), 3, image_size, image_size, dtype=torch.uint8)
        for place, number in enumerate(numbers.tolist()):
            decoded[place] = torch.from_numpy(_image(files[number], image_size)).permute(2, 0, 1)
        return decoded

    return Source(torch.tensor(labels), images)


def _in_memory(split: Split, image_size: int) -> Source:
    def images(numbers: torch.Tensor) -> torch.Tensor:
        chosen = split.images[numbers]
        if chosen.shape[-1] != image_size:
            side = (image_size, image_size)
            chosen = torch.nn.functional.interpolate(chosen, side, mode="bilinear", antialias=True)
        return chosen.contiguous()

    return Source(split.labels, images)


def _image(path: Path, size: int) -> np.ndarray:
    """One image file as uint8, size x size x 3."""
    try:
        with opened(path, tuple(sorted(set(IMAGE_FORMATS.values())))) as image:
            # Crop and resize in one step: a very long image never exists at its full resized length.
            return np.array(ImageOps.fit(image.convert("RGB"), (size, size), Image.Resampling.BILINEAR))
    except Exception as error:  # PIL's decoders raise errors of many types on damaged files
        raise VitinitError(f"cannot use the image {path}: {' '.join(str(error).split())}") from error


def levels(images: torch.Tensor) -> np.ndarray:
    """How often each of the 256 levels occurs in each channel, 3 x 256; those of parts of the images add up."""
    return np.stack([torch.bincount(images[:, channel].flatten(), minlength=256).numpy() for channel in range(3)])


def statistics(counts: np.ndarray) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and std of each channel in 0..1, exact: from the count of each of the 256 levels, 3 x 256."""
    level = np.arange(256) / 255
    mean, std = [], []
    for count in counts:
        share = count / count.sum()
        mean.append(float(share @ level))
        # A channel of one constant value is divided by 1, not by 0.
        std.append(float(np.sqrt(share @ (level - mean[-1]) ** 2)) or 1.0)
    return tuple(mean), tuple(std)
