"""The interface of datasets, and their registry.

A dataset is an instance of `Dataset` in a file of this folder, or of a package that names it in the entry point group
`vitinit.datasets`, as package.module:NAME.

Everything here is a function of the spec and the files alone: splits and subsets are the same in every run, at every
seed, and no global random state is read or changed. Torch and what else takes seconds to import is imported inside of
the functions that need it: planning reads all files of this folder.
"""

from __future__ import annotations

import os
import shlex
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from vitinit.benchmark.metrics.registry import main_metric
from vitinit.benchmark.spec import DatasetSpec
from vitinit.initializers.errors import VitinitError, count, os_errors
from vitinit.initializers.plugins import DATASETS, Registry

if TYPE_CHECKING:
    from vitinit.benchmark.image_files.arrays import Data, Split, Statistics

Arrays = tuple[np.ndarray, np.ndarray]
"""Images of a split, uint8, N x 3 x S x S, RGB, of any side S; and their labels, whole numbers from 0, N.

Of a `dense` dataset, in place of labels, masks: uint8, N x S x S, the class of each pixel, or `IGNORED`."""
Read = tuple[Arrays, Arrays, tuple[str, ...]]
"""Training split, test split, and the names of the classes in the order of the labels."""

IMAGENET_STATISTICS = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
"""Mean and standard deviation of ImageNet's channels, which are customary for photographs."""


class Opened(NamedTuple):
    """A dataset of which no image is decoded."""

    train: Split
    """The whole training split."""
    test: Split
    classes: tuple[str, ...]
    """Class names in the order of the labels."""
    statistics: Statistics | None = None
    """None where the whole training split, decoded, has to tell."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Dataset(ABC):
    """A dataset by name. Where its images are arrays, it is `InMemory`; otherwise subclass this and implement `open`.

    Attributes:
        name: What grids and the command line call it.
        images: Training and test images, where they are the same for everybody.
        classes: How many, where they are the same for everybody.
        statistics: Customary mean and std of each channel of the training pixels, in 0..1; else they are computed.
        metric: Main metric, as `top5`; default: top-1, or mean IoU where it is `dense`.
        files: Files and folders that are in the data folder once it is there.
        origin: Where it comes from if it is not downloaded, said to who asks for that: "comes with scikit-learn".
    """

    name: str
    images: tuple[int, int] | None = None
    classes: int | None = None
    statistics: Statistics | None = None
    metric: str | None = None
    files: tuple[str, ...] = ()
    origin: str = "is not downloaded"

    downloaded: ClassVar[bool] = False
    """`vitinit data get` fetches it."""
    streamed: ClassVar[bool] = False
    """Never held in memory: images are decoded, and cropped, when they are used."""
    dense: ClassVar[bool] = False
    """Every pixel has a class, and is predicted; measured by mean IoU. For one that is `InMemory`."""

    @property
    def main_metric(self) -> str:
        """Metric that its runs are compared by.

        Raises:
            VitinitError: it names a metric that is none of its kind.
        """
        return main_metric(self.metric, self.dense, self.classes)

    def unavailable(self, spec: DatasetSpec, data_dir: Path) -> str | None:
        """Return why it cannot be used here. Cheap: the contents of files are checked when they are read.

        Returns:
            One line that names what is missing and where it belongs, or None if nothing is.

        Raises:
            VitinitError: What the spec asks for is wrong.
        """
        if not (missing := ", ".join(self.missing(data_dir))):
            return None
        default = Path(os.environ.get("VITINIT_DATA") or "data")
        there = "" if data_dir.absolute() == default.absolute() else f" --data-dir {shlex.quote(str(data_dir))}"
        how = f", or run 'vitinit data get {self.name}{there}'" if self.downloaded else f"; it {self.origin}"
        return f"{self.name} is not here: put {missing} into {data_dir}{how}"

    def missing(self, data_dir: Path) -> list[str]:
        """Return those of its files that are not there."""
        return [file for file in self.files if not (data_dir / file).exists()]

    @property
    def mend(self) -> str:
        """End of the message on files that are damaged or not all there."""
        if not self.downloaded:
            return ""
        return f"; move away what is damaged of {', '.join(self.files)}, and run 'vitinit data get {self.name}'"

    def own_files(self, spec: DatasetSpec) -> dict[str, Any]:
        """Return `stamp` and `unread` of a folder of the user, as `DatasetInfo` has them; empty for other datasets."""
        return {}

    def download(self, data_dir: Path) -> None:
        """Put its files into `data_dir`, if it is `downloaded`; those already there stay as they are.

        Raises:
            VitinitError: A file that is there is damaged, or the download failed; the message then says which files to
                put where.
        """
        raise NotImplementedError

    @abstractmethod
    def open(self, spec: DatasetSpec, data_dir: Path) -> Opened:
        """Open its files.

        Raises:
            VitinitError: A file is not what it must be. An OSError becomes one.
        """

    def opened(self, spec: DatasetSpec, data_dir: Path) -> Opened:
        """Open it, if it is what it must be.

        Raises:
            VitinitError: It is not here or damaged, or not what it declares.
        """
        try:
            if reason := self.unavailable(spec, data_dir):
                raise VitinitError(reason)
            opened = self.open(spec, data_dir)
        except OSError as error:
            raise VitinitError(f"dataset {spec.label}: {error}") from error
        numbers, classes = (len(opened.train.labels), len(opened.test.labels)), len(opened.classes)
        if classes < 2 or 0 in numbers:
            raise VitinitError(
                f"dataset {spec.label}: {numbers[0]} training and {numbers[1]} test images of {classes} classes; "
                "some of each, and at least 2 classes, are needed"
            )
        if self.images and self.images != numbers:
            raise VitinitError(
                f"{spec.label} in {data_dir} has {numbers[0]:,} training and {numbers[1]:,} test images, and not "
                f"{self.images[0]:,} and {self.images[1]:,}{self.mend}"
            )
        return opened

    def training_images(self, spec: DatasetSpec) -> int | None:
        """Return the number of training images; None where only the files tell.

        Raises:
            VitinitError: `train_size` or `val_size` is more than there are, or less than there are classes. Where the
                size of the dataset is not known here, `train_and_val` says so.
        """
        return trained_on(spec, self.images[0], self.classes or 0) if self.images else spec.train_size


@dataclass(frozen=True, eq=False, kw_only=True)
class InMemory(Dataset):
    """One whose splits are read as arrays. Subclass it and implement `read`."""

    @abstractmethod
    def read(self, data_dir: Path) -> Read:
        """Return both splits and the classes.

        Raises:
            VitinitError: A file is not what it must be. An OSError becomes one.
        """

    def open(self, spec: DatasetSpec, data_dir: Path) -> Opened:
        """Both splits, the classes, and the statistics of the pixels as they are read."""
        import torch

        from vitinit.benchmark.image_files.arrays import IGNORED, Split, statistics

        *arrays, classes = self.read(data_dir)
        splits = []
        for name, (images, labels) in zip(("training", "test"), arrays, strict=True):
            where, side = f"dataset {self.name}: its `read` gives {name}", np.shape(images)[-1]
            kind = getattr(images, "dtype", type(images).__name__)
            shape, wanted = (len(images), 3, side, side), (len(images), side, side) if self.dense else (len(images),)
            if (kind, np.shape(images), np.shape(labels)) != (np.uint8, shape, wanted):
                raise VitinitError(
                    f"{where} images of {kind} {np.shape(images)} and labels {np.shape(labels)}; they are to be numpy "
                    f"arrays, uint8 {shape} and {wanted}"
                )
            present, known = {*np.unique(labels).tolist()}, {*range(len(classes))}
            known |= {IGNORED} if self.dense else set()
            if present - known or (name == "training" and not self.dense and known - present):
                raise VitinitError(f"{where} labels {sorted(present)[:20]} for {len(classes)} classes")
            values = torch.from_numpy(np.ascontiguousarray(labels, np.uint8 if self.dense else np.int64))
            splits.append(Split(torch.from_numpy(np.ascontiguousarray(images)), values))
        train, test = splits
        return Opened(train, test, classes, self.statistics or statistics(train, arrays[0][0].shape[-1]))


REGISTRY: Registry[Dataset] = Registry(
    "dataset",
    (__package__,),
    group=DATASETS,
    wanted="a Dataset: name an instance, such as MINE = MyData(name='mine')",
    accepts=lambda value: isinstance(value, Dataset),
    collect=True,
    check=lambda dataset, _: dataset.main_metric,
    order=lambda dataset: (dataset.images or (float("inf"),))[0],
)


def names() -> list[str]:
    """Names of all datasets, from the smallest to the largest; last, those whose size only the files tell."""
    return list(REGISTRY.by_name())


get = REGISTRY.get


def unavailable(spec: DatasetSpec, data_dir: Path) -> str | None:
    """Return in one line why a dataset cannot be used here, None where it can: see `Dataset.unavailable`.

    Raises:
        VitinitError: The name is unknown, or what the spec asks for is wrong.
    """
    try:
        return get(spec.name).unavailable(spec, data_dir)
    except OSError as error:
        return f"{spec.name} cannot be looked for: {error}"


def data_dir(argument: Path | None) -> Path:
    """The folder with the downloaded files: the argument, else environment VITINIT_DATA, else ./data."""
    return argument or Path(os.environ.get("VITINIT_DATA") or "data")


def load(spec: DatasetSpec, image_size: int, data_dir: Path, draw: int = 0, cropped: bool = False) -> Data:
    """Read a dataset, take the part that the spec asks for and resize its images to `image_size`.

    One that is streamed, or `cropped`, is opened only: its images are decoded and cropped when they are used.

    Args:
        spec: Which dataset, and how much of its training split.
        image_size: Side of the images in pixels. Others are resized (bilinear, antialiased); the images of a folder
            have their shorter side resized and are cropped at the centre.
        data_dir: Where the files of datasets are that are downloaded or prepared.
        draw: Which subset, where the spec redraws it by seed.
        cropped: The recipe crops images of their own size (`Recipe.crops`).

    Raises:
        VitinitError: The dataset is unknown, missing or damaged, a folder is not laid out as it must be, an image
            cannot be used, or `train_size` and `val_size` do not fit the training split.
    """
    from vitinit.benchmark.image_files.arrays import split_up

    dataset = get(spec.name)
    opened = dataset.opened(spec, data_dir)
    numbers = train_and_val(opened.train.labels.numpy(), spec, len(opened.classes), draw)
    with os_errors(f"dataset {spec.label}"):
        return split_up(opened, numbers, spec.evaluate_on == "test", image_size, not (cropped or dataset.streamed))


def decoded_size(spec: DatasetSpec, image_size: int, data_dir: Path) -> int:
    """Bytes of the images, and masks, that `load` holds in memory, found out without decoding them."""
    dataset = get(spec.name)
    if dataset.images:
        held_out = spec.val_size if spec.evaluate_on == "val" else dataset.images[1]
        images = (dataset.training_images(spec) or 0) + (held_out or 0)
    else:  # the whole training split is decoded, whatever the subset
        opened = dataset.opened(spec, data_dir)
        images = len(opened.train.labels) + len(opened.test.labels)
    return images * (4 if dataset.dense else 3) * image_size**2


def download(name: str, data_dir: Path) -> None:
    """Download the files of a dataset and check them; files that are there already stay as they are.

    Raises:
        VitinitError: The dataset is unknown or needs no download, a file that is there is damaged, or the download
            failed; the message then says which files to put where.
    """
    dataset = get(name)
    if not dataset.downloaded:
        raise VitinitError(
            f"there is nothing to download for {name}, it {dataset.origin}; to download: "
            f"{', '.join(sorted(known for known in names() if get(known).downloaded))}"
        )
    with os_errors(f"cannot get {name} into {data_dir}"):
        dataset.download(data_dir)


# --- indices of the training images, and of those held out for validation ---


def trained_on(spec: DatasetSpec, images: int, classes: int) -> int:
    """Number of images that a spec trains on, of so many of the training split.

    Raises:
        VitinitError: `train_size` or `val_size` is more than there are, or less than there are classes.
    """
    left = images
    for name in ("val_size", "train_size"):
        size = getattr(spec, name)
        if size is None:
            continue
        if size > left:
            raise VitinitError(f"dataset {spec.label}: {name} {size} is more than the {left} training images there are")
        if size < classes:
            raise VitinitError(f"dataset {spec.label}: {name} {size} is less than its number of classes, {classes}")
        left = left - size if name == "val_size" else size
    if not left:
        raise VitinitError(f"dataset {spec.label}: val_size {spec.val_size} leaves no image to train on")
    return left


def train_and_val(labels: np.ndarray, spec: DatasetSpec, classes: int, draw: int) -> tuple[np.ndarray, np.ndarray]:
    """The images to train on, and those of `val_size`: no image is in both.

    Args:
        labels: int, N, of the whole training split; or masks, N x S x S, in each of which are several classes: images
            are then drawn from all, whatever is in them.
        spec: how many of each.
        classes: how many classes there are.
        draw: which subset, where the spec redraws it (`train_draw: seed`).

    Returns:
        Ascending indices of both; the second is empty without `val_size`.

    Raises:
        VitinitError: as `trained_on`, or a class is left without training images.
    """
    if labels.ndim > 1:
        labels, classes = np.zeros(len(labels), np.int64), 1
    trained_on(spec, len(labels), classes)
    val = stratified(labels, spec.val_size or 0, classes)
    rest = np.setdiff1d(np.arange(len(labels)), val, assume_unique=True)
    if len(gone := np.setdiff1d(labels, labels[rest])):
        raise VitinitError(
            f"val_size {spec.val_size} takes all images with label {gone[0]}, and leaves none to train on"
        )
    if spec.train_size is not None:
        rest = rest[stratified(labels[rest], spec.train_size, classes, draw if spec.train_draw == "seed" else 0)]
    return rest, val


def stratified(labels: np.ndarray, size: int, classes: int, draw: int = 0) -> np.ndarray:
    """`size` images with the classes in proportion, at least one of each; a subset contains the smaller of its draw.

    Args:
        labels: int, N.
        size: how many of them.
        classes: how many classes there are.
        draw: 0 is the draw of subsets that are the same at every seed.

    Returns:
        Ascending indices of the chosen images.
    """
    # numpy promises that the numbers of RandomState never change, and of no other generator.
    random = np.random.RandomState(draw % 2**32)
    position = np.empty(len(labels))
    for label in range(classes):
        members = np.flatnonzero(labels == label)
        position[members] = random.permutation(len(members)) / len(members)
    return np.sort(np.argsort(position, kind="stable")[:size])


def duplicates(trained: list[tuple[int, int]], held_out: list[tuple[int, int]]) -> list[str]:
    """Return lines on images that are there more than once; each is given as a hash of its content, and its label."""
    contents, labelled = dict(trained), {*trained, *held_out}
    shared = len([content for content, _ in held_out if content in contents])
    twice = len(labelled) - len(dict(labelled))
    lines = [f"{shared} of the {len(held_out)} held-out images are trained on, too"] if shared else []
    return [*lines, f"{count(twice, 'image')} under two labels"] if twice else lines


def a_fifth(labels: np.ndarray, classes: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Return ascending indices of training and test images of data without splits: the same fifth of each class always.

    It is that of scikit-learn's `train_test_split` with random_state 0.

    Raises:
        VitinitError: a class has one image.
    """
    testing = np.zeros(len(labels), bool)
    for label, name in enumerate(classes):
        members = np.flatnonzero(labels == label)
        if len(members) == 1:
            raise VitinitError(f"class {name} has one image; training and test split need one each")
        count = max(1, round(len(members) / 5))
        testing[members[np.random.RandomState(0).permutation(len(members))[:count]]] = True
    return np.flatnonzero(~testing), np.flatnonzero(testing)
