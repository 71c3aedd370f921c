"""CIFAR-10 and CIFAR-100 (Krizhevsky, 2009): photographs of 32 x 32 pixels."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vitinit.benchmark.datasets.dataset import Arrays
from vitinit.benchmark.datasets.downloaded import Downloaded


@dataclass(frozen=True, eq=False, kw_only=True)
class Cifar(Downloaded):
    """Either of them; torchvision has a class for each.

    Attributes:
        torchvision_class: Its name.
    """

    torchvision_class: str

    def torchvision(self, root: Path, download: bool) -> tuple[Any, Any]:
        """The training and the test dataset of torchvision in this folder."""
        import torchvision.datasets

        cifar = getattr(torchvision.datasets, self.torchvision_class)
        return cifar(root, train=True, download=download), cifar(root, train=False)

    def arrays(self, train: Any, test: Any) -> tuple[Arrays, Arrays, tuple[str, ...]]:
        """Both splits; the names of the classes stand in a file."""
        import numpy as np

        first, second = ((each.data.transpose(0, 3, 1, 2), np.array(each.targets)) for each in (train, test))
        return first, second, tuple(train.classes)


CIFAR10 = Cifar(
    name="cifar10",
    images=(50_000, 10_000),
    classes=10,
    statistics=((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
    torchvision_class="CIFAR10",
    files={
        "cifar-10-batches-py/data_batch_1": "c99cafc152244af753f735de768cd75f",
        "cifar-10-batches-py/data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
        "cifar-10-batches-py/data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
        "cifar-10-batches-py/data_batch_4": "634d18415352ddfa80567beed471001a",
        "cifar-10-batches-py/data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
        "cifar-10-batches-py/test_batch": "40351d587109b95175f43aff81a1287e",
        "cifar-10-batches-py/batches.meta": "5ff9c542aee3614f3951f8cda6e48888",
    },
)
CIFAR100 = Cifar(
    name="cifar100",
    images=(50_000, 10_000),
    classes=100,
    statistics=((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
    torchvision_class="CIFAR100",
    files={
        "cifar-100-python/train": "16019d7e3df5f24257cddd939b257f8d",
        "cifar-100-python/test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
        "cifar-100-python/meta": "7973b15100ade9c7d40fb424638fde48",
    },
)
