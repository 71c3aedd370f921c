"""Datasets of torchvision, the rows of `torchvision_sets.yaml`: it downloads them and knows their splits.

It checks their md5 sums, too.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from vitinit.benchmark.datasets.registry import IMAGENET_STATISTICS, REGISTRY, Dataset, Opened
from vitinit.benchmark.files.yaml_text import read
from vitinit.benchmark.spec import DatasetSpec
from vitinit.initializers.errors import VitinitError, plain
from vitinit.initializers.plugins import imported

if TYPE_CHECKING:
    from vitinit.benchmark.image_files.arrays import Split, Statistics


@dataclass(frozen=True, eq=False, kw_only=True)
class TorchvisionSet(Dataset):
    """One torchvision dataset, from the YAML file.

    Attributes:
        class_name: Name of its class in `torchvision.datasets`.
        train: Arguments of that class for each part of the training split.
        test: The same for the test split. Empty: nobody published one, and a fifth of each class is held out.
        statistics: Default: ImageNet's, as is customary for photographs.
    """

    class_name: str
    images: tuple[int, int]
    classes: int
    train: tuple[dict[str, Any], ...] = ({"split": "train"},)
    test: tuple[dict[str, Any], ...] = ({"split": "test"},)
    statistics: Statistics = IMAGENET_STATISTICS
    downloaded: ClassVar[bool] = True

    def download(self, data_dir: Path) -> None:
        """Let torchvision download and unpack it beside the data folder's files, and put what is missing among them."""
        if missing := self.missing(data_dir):
            data_dir.mkdir(parents=True, exist_ok=True)
            # Torchvision takes half an unpacked folder for a whole one.
            with tempfile.TemporaryDirectory(prefix=".download-", dir=data_dir) as scratch:
                with _one_line(f"cannot download {self.name}", f"; put {', '.join(missing)} into {data_dir}"):
                    for arguments in (*self.train, *self.test):
                        self._torchvision(Path(scratch), arguments, download=True)
                for file in missing:
                    (data_dir / file).parent.mkdir(exist_ok=True)
                    (Path(scratch) / file).replace(data_dir / file)
        self.open(DatasetSpec(name=self.name), data_dir)

    def open(self, spec: DatasetSpec, data_dir: Path) -> Opened:
        """Both splits as torchvision has them, and the classes; where these have no names, their numbers."""
        with _one_line(f"cannot read {self.name} in {data_dir}", self.mend):
            splits = [self._torchvision(data_dir, arguments) for arguments in self.train]
            classes = tuple(getattr(splits[0], "classes", map(str, range(self.classes))))
            train = _joined(splits)
            if self.test:
                test = _joined([self._torchvision(data_dir, arguments) for arguments in self.test])
            else:
                train, test = train.a_fifth_held_out(classes)
        return Opened(train, test, classes, self.statistics)

    def _torchvision(self, root: Path, arguments: dict[str, Any], download: bool = False) -> Any:
        import torchvision.datasets

        return getattr(torchvision.datasets, self.class_name)(root, download=download, **arguments)


def _joined(splits: list[Any]) -> Split:
    """Some datasets of torchvision, one after the other."""
    import numpy as np
    import torch
    from torch.utils.data import ConcatDataset

    from vitinit.benchmark.image_files.arrays import Split, read_image

    named = next(name for name in ("targets", "labels", "_labels") if hasattr(splits[0], name))
    labels = torch.from_numpy(np.concatenate([np.asarray(getattr(split, named), np.int64) for split in splits]))
    if hasattr(splits[0], "data"):
        pixels = np.concatenate([split.data for split in splits])
        if pixels.shape[1] != 3:  # CIFAR's channels are last
            pixels = pixels.transpose(0, 3, 1, 2)
        return Split(torch.from_numpy(np.ascontiguousarray(pixels)), labels)

    def read(path: Path) -> Any:
        with imported(f"cannot use the image {path}", VitinitError):
            return read_image(path, first=True)

    for split in splits:
        split.loader = read
    joined: ConcatDataset[Any] = ConcatDataset(splits)
    return Split(None, labels, lambda number: joined[number][0].convert("RGB"))


@contextmanager
def _one_line(failed: str, way_out: str) -> Iterator[None]:
    """Whatever fails in torchvision is one line, with a way out."""
    try:
        yield
    except Exception as error:  # of many types: servers and archives are somebody else's
        said = plain(str(error)).split(" You can use download=True")[0].rstrip(".") or type(error).__name__
        raise VitinitError(f"{failed} ({said}){way_out}") from error


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


ROWS = Path(__file__).with_suffix(".yaml")
for _name, _row in read(ROWS).items():
    REGISTRY.put(TorchvisionSet(name=_name, **{field: _tuples(value) for field, value in _row.items()}), ROWS.name)
