"""SVHN (Netzer et al., 2011), cropped: digits of house numbers, 32 x 32 pixels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vitinit.benchmark.datasets.dataset import Arrays
from vitinit.benchmark.datasets.downloaded import Downloaded


class Svhn(Downloaded):
    """Torchvision's class, without the images that it calls extra."""

    def torchvision(self, root: Path, download: bool) -> tuple[Any, Any]:
        """The training and the test dataset of torchvision in this folder."""
        from torchvision.datasets import SVHN

        return SVHN(root, "train", download=download), SVHN(root, "test", download=download)

    def arrays(self, train: Any, test: Any) -> tuple[Arrays, Arrays, tuple[str, ...]]:
        """Both splits; the classes are the digits."""
        return (train.data, train.labels), (test.data, test.labels), tuple("0123456789")


SVHN_CROPPED = Svhn(
    name="svhn",
    images=(73_257, 26_032),
    classes=10,
    statistics=((0.4376821, 0.4437697, 0.47280442), (0.19803012, 0.20101562, 0.19703614)),
    files={
        "train_32x32.mat": "e26dedcc434d2e4c54c9b2d4a06d8373",
        "test_32x32.mat": "eb5a983be6a315427106f1b164d9cef3",
    },
)
