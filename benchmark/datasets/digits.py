"""The 1,797 handwritten digits of 8 x 8 pixels that come with scikit-learn; a fifth of them is the test split.

The splits, in `digits.json`, are those of its `train_test_split`, stratified, with random_state 0.
"""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from vitinit.benchmark.datasets.registry import InMemory, Read


class Digits(InMemory):
    """Grey images, in three equal channels; levels of 0 to 16 become those of 0 to 255."""

    def read(self, data_dir: Path) -> Read:
        """Both splits, always the same ones, and the classes."""
        import numpy as np

        package: Any = find_spec("sklearn")  # importing it takes a second
        content = np.loadtxt(Path(package.origin).with_name("datasets") / "data/digits.csv.gz", delimiter=",")
        grey = np.round(content[:, :-1] * (255 / 16)).astype(np.uint8).reshape(-1, 8, 8)
        rgb, labels = np.repeat(grey[:, None], 3, axis=1), content[:, -1].astype(np.int64)
        train, test = json.loads(Path(__file__).with_suffix(".json").read_text())
        return (rgb[train], labels[train]), (rgb[test], labels[test]), tuple("0123456789")


DIGITS = Digits(name="digits", images=(1437, 360), classes=10, origin="comes with scikit-learn")
