"""The 1,797 handwritten digits of 8 x 8 pixels that come with scikit-learn; a fifth of them is the test split."""

from __future__ import annotations

from pathlib import Path

from vitinit.benchmark.datasets.dataset import Arrays, InMemory


class Digits(InMemory):
    """Grey images, in three equal channels; levels of 0 to 16 become those of 0 to 255."""

    def read(self, data_dir: Path) -> tuple[Arrays, Arrays, tuple[str, ...]]:
        """Both splits, always the same ones, and the classes."""
        import numpy as np
        from sklearn.datasets import load_digits
        from sklearn.model_selection import train_test_split

        digits = load_digits()
        grey = np.round(digits.images * (255 / 16)).astype(np.uint8)
        rgb = np.repeat(grey[:, None], 3, axis=1)
        parts = train_test_split(rgb, digits.target, test_size=360, stratify=digits.target, random_state=0)
        train_images, test_images, train_labels, test_labels = parts
        return (train_images, train_labels), (test_images, test_labels), tuple("0123456789")


DIGITS = Digits(name="digits", images=(1437, 360), classes=10, origin="comes with scikit-learn")
