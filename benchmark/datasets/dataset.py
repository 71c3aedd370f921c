"""The interface of datasets. A dataset is an instance of `Dataset` in a file of this folder, or behind an entry point.

Everything here is a function of the spec and the files alone: splits and subsets are the same in every run, at every
seed, and no global random state is read or changed. Torch and what else takes seconds to import is imported inside of
the functions that need it: planning reads all files of this folder.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from vitinit.benchmark.metrics.registry import main_metric
from vitinit.benchmark.spec import DatasetSpec
from vitinit.initializers.errors import VitinitError

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    from vitinit.benchmark.image_files.arrays import Data, Source, Sources, Statistics
    from vitinit.benchmark.image_files.full_size import FullSizeData, Opened

Arrays = tuple["np.ndarray", "np.ndarray"]
"""Images of a split, uint8, N x 3 x S x S, RGB, of any side S; and their labels, whole numbers from 0, N.

Of a `dense` dataset, in place of labels, masks: uint8, N x S x S, the class of each pixel, or `IGNORED`."""

Report = Callable[[int, int], None]
"""Told how much is done, and of how much."""


def silent(done: int, total: int) -> None:
    """Nobody is told."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Dataset(ABC):
    """A dataset by name. Most are `InMemory`; where images have to be decoded, subclass this and implement `opened`.

    Attributes:
        name: What grids and the command line call it.
        images: Training and test images, where they are the same for everybody.
        classes: How many, where they are the same for everybody.
        statistics: Customary mean and std of each channel of the training pixels, in 0..1; else they are computed.
        metric: Main metric, as `top5`; default: top-1, or mean IoU where it is `dense`.
        origin: Where it comes from if it is not downloaded, said to who asks for that: "comes with scikit-learn".
    """

    name: str
    images: tuple[int, int] | None = None
    classes: int | None = None
    statistics: Statistics | None = None
    metric: str | None = None
    origin: str = "is not downloaded"

    downloaded: ClassVar[bool] = False
    """`vitinit data get` fetches it."""
    packed: ClassVar[bool] = False
    """Prepared once, and never held in memory: images are decoded, and cropped, when they are used."""
    has_full_size: ClassVar[bool] = False
    """`full_size` gives its images in their own size, for recipes that crop them (`crop_scale`, `crop_pct`)."""
    dense: ClassVar[bool] = False
    """Every pixel has a class, and is predicted; measured by mean IoU. For one that is `InMemory`."""

    @property
    def main_metric(self) -> str:
        """Metric that its runs are compared by.

        Raises:
            VitinitError: it names a metric that is none of its kind.
        """
        try:
            return main_metric(self.metric, self.dense, self.classes)
        except VitinitError as error:
            raise VitinitError(f"dataset {self.name}: {error}") from None

    def unavailable(self, spec: DatasetSpec, data_dir: Path) -> str | None:
        """Says why it cannot be used here; cheap, the contents of files are checked when they are read.

        Returns:
            One line that names what is missing and where it belongs, or None if nothing is.

        Raises:
            VitinitError: What the spec asks for is wrong.
        """
        return None

    def download(self, data_dir: Path, report: Report = silent) -> None:
        """Put its files into `data_dir`, if it is `downloaded`; those already there stay as they are.

        `report` may be told how much is done, and of how much.

        Raises:
            VitinitError: A file that is there is damaged, or the download failed; the message then says which files to
                put where.
        """
        raise VitinitError(f"dataset {self.name} is said to be downloaded, and has no `download`")

    @abstractmethod
    def opened(
        self, spec: DatasetSpec, image_size: int, data_dir: Path
    ) -> tuple[Source, Source, tuple[str, ...], Statistics | None]:
        """Both splits, not decoded yet, the classes, and the statistics, or None where decoding has to tell."""

    def sources(self, spec: DatasetSpec, image_size: int, data_dir: Path, draw: int = 0) -> Sources:
        """Opens it and decodes no image; see `benchmark.datasets.load.sources`."""
        import torch

        from vitinit.benchmark.image_files.arrays import Sources
        from vitinit.benchmark.image_files.subset import parts

        try:
            train, test, classes, statistics = self.opened(spec, image_size, data_dir)
        except OSError as error:
            raise VitinitError(f"dataset {spec.label}: {error}") from error
        for name, split in (("training", train), ("test", test)):
            if not len(split.labels):
                raise VitinitError(f"dataset {spec.label}: it has no {name} images")
        if len(classes) < 2:
            raise VitinitError(
                f"dataset {spec.label}: it has one class, and nothing to tell apart; at least 2 are needed"
            )
        chosen, val = (torch.from_numpy(part) for part in parts(train.labels.numpy(), spec, len(classes), draw))
        return Sources(train, test, classes, statistics, chosen, val)

    def full_size(self, spec: DatasetSpec, image_size: int, data_dir: Path) -> Opened:
        """Both splits with images in their own size, the classes, and the statistics, if it `has_full_size`.

        Raises:
            VitinitError: A file is not what it must be. An OSError becomes one.
        """
        raise VitinitError(f"dataset {self.name} has no images in their own size to crop (crop_scale, crop_pct)")

    def load(
        self, spec: DatasetSpec, image_size: int, data_dir: Path, draw: int = 0, cropped: bool = False
    ) -> Data | FullSizeData:
        """Open the dataset for a loader; see `benchmark.datasets.load.load`."""
        from vitinit.benchmark.image_files.arrays import decoded
        from vitinit.benchmark.image_files.full_size import chosen

        if not (cropped or self.packed):
            return decoded(self.sources(spec, image_size, data_dir, draw), on_test=spec.evaluate_on == "test")
        try:
            opened = self.full_size(spec, image_size, data_dir)
        except OSError as error:
            raise VitinitError(f"dataset {spec.label}: {error}") from error
        return chosen(opened, spec, image_size, draw)

    def training_images(self, spec: DatasetSpec) -> int | None:
        """Return the number of training images; None where only the files tell.

        Raises:
            VitinitError: `train_size` or `val_size` is more than there are, or less than there are classes. Where the
                size of the dataset is not known here, `subset.parts` says so.
        """
        if self.images is None:
            return spec.train_size
        left = self.images[0]
        for name in ("val_size", "train_size"):
            size = getattr(spec, name)
            if size is None:
                continue
            if size > left:
                raise VitinitError(
                    f"dataset {spec.label}: {name} {size} is more than the {left} training images there are"
                )
            if self.classes and size < self.classes:
                raise VitinitError(
                    f"dataset {spec.label}: {name} {size} is less than its number of classes, {self.classes}"
                )
            left = left - size if name == "val_size" else size
        if not left:
            raise VitinitError(f"dataset {spec.label}: val_size {spec.val_size} leaves no image to train on")
        return left

    def counts(self, spec: DatasetSpec) -> tuple[int, int] | None:
        """Return the numbers of training and evaluation images; None where only the files tell."""
        trained = self.training_images(spec)
        if self.images is None or trained is None:
            return None
        return trained, (spec.val_size or 0) if spec.evaluate_on == "val" else self.images[1]

    def images_in_memory(self, spec: DatasetSpec, data_dir: Path) -> int:
        """Return the number of images held in memory, without decoding them."""
        counts = self.counts(spec)
        if counts is None:
            sources = self.sources(spec, 1, data_dir)
            return len(sources.train.labels) + len(sources.test.labels)
        return sum(counts)


@dataclass(frozen=True, eq=False, kw_only=True)
class InMemory(Dataset):
    """One whose splits are read as arrays. Subclass it and implement `read`."""

    has_full_size: ClassVar[bool] = True

    @abstractmethod
    def read(self, data_dir: Path) -> tuple[Arrays, Arrays, tuple[str, ...]]:
        """Training split, test split, and the names of the classes in the order of the labels.

        Raises:
            VitinitError: A file is not what it must be. An OSError becomes one.
        """

    def opened(
        self, spec: DatasetSpec, image_size: int, data_dir: Path
    ) -> tuple[Source, Source, tuple[str, ...], Statistics | None]:
        """Both splits, not decoded yet, the classes, and the statistics, or None where decoding has to tell."""
        from vitinit.benchmark.image_files.arrays import in_memory

        (train, test), classes, statistics = self._splits(data_dir)
        return in_memory(*train, image_size), in_memory(*test, image_size), classes, statistics

    def full_size(self, spec: DatasetSpec, image_size: int, data_dir: Path) -> Opened:
        """Both splits as they are read, the classes, and the statistics."""
        from vitinit.benchmark.image_files.full_size import Pixels

        (train, test), classes, statistics = self._splits(data_dir)
        return Pixels(*train), Pixels(*test), classes, statistics

    def _check(self, splits: list[Arrays], classes: tuple[str, ...]) -> None:
        """Refuse arrays that `read` must not return.

        Raises:
            VitinitError: it says which split, what it has, and what is allowed.
        """
        import numpy as np

        from vitinit.benchmark.image_files.arrays import IGNORED

        def check(holds: bool, what: str) -> None:
            if not holds:
                raise VitinitError(f"dataset {self.name}: its `read` gives {what}")

        check(len(classes) >= 2, f"{len(classes)} class names; at least 2 are needed")
        for number, (name, (images, labels)) in enumerate(zip(("training", "test"), splits, strict=True)):
            has = [f"{array.dtype} {' x '.join(map(str, array.shape))}" for array in (images, labels)]
            square = images.ndim == 4 and images.shape[1] == 3 and images.shape[2] == images.shape[3]
            check(images.dtype == np.uint8 and square, f"{name} images of {has[0]}; they are uint8, N x 3 x S x S")
            shape = (len(images), *images.shape[2:]) if self.dense else (len(images),)
            of = "uint8, N x S x S" if self.dense else "integers, N"
            check(labels.dtype.kind in "iu" and labels.shape == shape, f"{name} labels of {has[1]}; they are {of}")
            check(len(images) > 0, f"no {name} images")
            known = labels[labels != IGNORED] if self.dense else labels
            low, high = (int(known.min()), int(known.max())) if known.size else (0, 0)
            check(
                low >= 0 and high < len(classes),
                f"{name} labels from {low} to {high}; of {len(classes)} classes they are 0 to {len(classes) - 1}",
            )
            if name == "training" and not self.dense and (present := len(np.unique(labels))) < len(classes):
                check(False, f"{len(classes)} class names, and training images of {present} of them only")
            if self.images:
                count = self.images[number]
                check(len(images) == count, f"{len(images)} {name} images; its `images` says {count}")

    def _splits(self, data_dir: Path) -> tuple[list[tuple[Tensor, Tensor]], tuple[str, ...], Statistics]:
        """Images and labels of both splits, the classes, and the statistics."""
        import numpy as np
        import torch

        from vitinit.benchmark.image_files.arrays import levels, statistics

        *splits, classes = self.read(data_dir)
        self._check(splits, classes)
        kind = np.uint8 if self.dense else np.int64
        found = [
            (torch.from_numpy(np.ascontiguousarray(images)), torch.from_numpy(np.ascontiguousarray(labels, kind)))
            for images, labels in splits
        ]
        return found, classes, self.statistics or statistics(levels(found[0][0]))
