"""Datasets of torchvision, a row each: it downloads them, checks their md5 sums and knows their splits."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from vitinit.benchmark.datasets.dataset import Dataset
from vitinit.benchmark.datasets.imagenet import IMAGENET
from vitinit.benchmark.image_files.images import read_image
from vitinit.benchmark.spec import DatasetSpec
from vitinit.initializers.errors import VitinitError, plain

if TYPE_CHECKING:
    from vitinit.benchmark.image_files.arrays import Split, Statistics


@dataclass(frozen=True, eq=False, kw_only=True)
class TorchvisionSet(Dataset):
    """A row.

    Attributes:
        kind: Name of its class in `torchvision.datasets`.
        train: Arguments of that class for each part of the training split.
        test: The same for the test split. Empty: nobody published one, and a fifth of each class is held out.
        files: Files and folders that are in the data folder once it is there.
        statistics: Default: ImageNet's, as is customary for photographs.
    """

    kind: str
    images: tuple[int, int]
    classes: int
    files: tuple[str, ...]
    train: tuple[dict[str, Any], ...] = ({"split": "train"},)
    test: tuple[dict[str, Any], ...] = ({"split": "test"},)
    statistics: Statistics = IMAGENET.statistics
    downloaded: ClassVar[bool] = True

    def unavailable(self, spec: DatasetSpec, data_dir: Path) -> str | None:
        """Names the files that are not there."""
        if not (missing := self._missing(data_dir)):
            return None
        return f"{self.name} is not here: put {missing} into {data_dir}, or run 'vitinit data get {self.name}'"

    def _missing(self, data_dir: Path) -> str:
        return ", ".join(file for file in self.files if not (data_dir / file).exists())

    def download(self, data_dir: Path) -> None:
        """Let torchvision download and unpack it beside the data folder's files, and put what is missing among them."""
        missing = self._missing(data_dir)
        if missing:
            data_dir.mkdir(parents=True, exist_ok=True)
            # Torchvision takes half an unpacked folder for a whole one.
            with tempfile.TemporaryDirectory(prefix=".download-", dir=data_dir) as scratch:
                with _one_line(f"cannot download {self.name}", f"put {missing} into {data_dir}"):
                    for arguments in (*self.train, *self.test):
                        self._torchvision(Path(scratch), arguments, download=True)
                for file in missing.split(", "):
                    (data_dir / file).parent.mkdir(exist_ok=True)
                    (Path(scratch) / file).replace(data_dir / file)
        self.open(DatasetSpec(name=self.name), data_dir)

    def open(self, spec: DatasetSpec, data_dir: Path) -> tuple[Split, Split, tuple[str, ...], Statistics | None]:
        """Both splits as torchvision has them, and the classes; where these have no names, their numbers."""
        again = f"move away what is damaged of {', '.join(self.files)}, and run 'vitinit data get {self.name}'"
        with _one_line(f"cannot read {self.name} in {data_dir}", again):
            parts = [self._torchvision(data_dir, arguments) for arguments in self.train]
            classes = tuple(getattr(parts[0], "classes", map(str, range(self.classes))))
            train = _joined(parts)
            if self.test:
                test = _joined([self._torchvision(data_dir, arguments) for arguments in self.test])
            else:
                train, test = train.a_fifth_held_out(classes)
        if (len(train.labels), len(test.labels)) != self.images:
            raise VitinitError(
                f"{self.name} in {data_dir} does not have {self.images[0]} and {self.images[1]} images; {again}"
            )
        return train, test, classes, self.statistics

    def _torchvision(self, root: Path, arguments: dict[str, Any], download: bool = False) -> Any:
        import torchvision.datasets

        return getattr(torchvision.datasets, self.kind)(root, download=download, **arguments)


def _joined(parts: list[Any]) -> Split:
    """Some datasets of torchvision, one after the other."""
    import numpy as np
    import torch
    from torch.utils.data import ConcatDataset

    from vitinit.benchmark.image_files.arrays import Split

    named = next(name for name in ("targets", "labels", "_labels") if hasattr(parts[0], name))
    labels = torch.from_numpy(np.concatenate([np.asarray(getattr(part, named), np.int64) for part in parts]))
    if hasattr(parts[0], "data"):
        pixels = np.concatenate([part.data for part in parts])
        if pixels.shape[1] != 3:  # CIFAR's channels are last
            pixels = pixels.transpose(0, 3, 1, 2)
        return Split(torch.from_numpy(np.ascontiguousarray(pixels)), labels)
    for part in parts:
        part.loader = read_image
    joined: ConcatDataset[Any] = ConcatDataset(parts)
    return Split(None, labels, lambda number: joined[number][0].convert("RGB"))


@contextmanager
def _one_line(failed: str, way_out: str) -> Iterator[None]:
    """Whatever fails in torchvision is one line, with a way out."""
    try:
        yield
    except Exception as error:  # of many types: servers and archives are somebody else's
        said = plain(str(error)).split(" You can use download=True")[0].rstrip(".") or type(error).__name__
        raise VitinitError(f"{failed} ({said}); {way_out}") from error


CIFAR10 = TorchvisionSet(
    name="cifar10",
    kind="CIFAR10",
    train=({"train": True},),
    test=({"train": False},),
    images=(50_000, 10_000),
    classes=10,
    statistics=((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
    files=("cifar-10-batches-py",),
)
CIFAR100 = TorchvisionSet(
    name="cifar100",
    kind="CIFAR100",
    train=({"train": True},),
    test=({"train": False},),
    images=(50_000, 10_000),
    classes=100,
    statistics=((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
    files=("cifar-100-python",),
)
SVHN = TorchvisionSet(
    name="svhn",
    kind="SVHN",
    images=(73_257, 26_032),
    classes=10,
    statistics=((0.4376821, 0.4437697, 0.47280442), (0.19803012, 0.20101562, 0.19703614)),
    files=("train_32x32.mat", "test_32x32.mat"),
)
"""The images that it calls extra are not used."""
STL10 = TorchvisionSet(name="stl10", kind="STL10", images=(5_000, 8_000), classes=10, files=("stl10_binary",))
"""The images without labels are not used."""
FLOWERS = TorchvisionSet(
    name="flowers",
    kind="Flowers102",
    train=({"split": "train"}, {"split": "val"}),
    images=(2_040, 6_149),
    classes=102,
    files=("flowers-102/jpg", "flowers-102/imagelabels.mat", "flowers-102/setid.mat"),
)
"""Trained on the published training and validation images together, as is customary where it is learned from."""
PETS = TorchvisionSet(
    name="pets",
    kind="OxfordIIITPet",
    train=({"split": "trainval"},),
    images=(3_680, 3_669),
    classes=37,
    files=("oxford-iiit-pet/images", "oxford-iiit-pet/annotations"),
)
FOOD101 = TorchvisionSet(
    name="food101",
    kind="Food101",
    images=(75_750, 25_250),
    classes=101,
    files=("food-101/images", "food-101/meta"),
)
EUROSAT = TorchvisionSet(
    name="eurosat",
    kind="EuroSAT",
    train=({},),
    test=(),
    images=(21_600, 5_400),
    classes=10,
    files=("eurosat/2750",),
)
