"""Food-101 (Bossard et al., 2014): 101 dishes, 750 training and 250 test images each."""

from __future__ import annotations

from pathlib import Path

from vitinit.benchmark.datasets.archives.archived import Archived, Listing


class Food101(Archived):
    """The labels of the training images are noisy on purpose."""

    def listing(self, root: Path) -> Listing:
        """In the order of `train.txt` and `test.txt`, which torchvision does not read: its JSON has another."""
        from torchvision.datasets import Food101

        labels = Food101(root, download=True).class_to_idx

        def images(split: str) -> list[tuple[Path, int]]:
            names = (root / f"food-101/meta/{split}.txt").read_text().split()
            return [(root / f"food-101/images/{name}.jpg", labels[name.split("/")[0]]) for name in names]

        return Listing(tuple(labels), images("train"), images("test"))


FOOD101 = Food101(
    name="food101",
    title="Food-101",
    images=(75_750, 25_250),
    classes=101,
    files={"food-101.tar.gz": "85eeb15f3717b99a5da872d97d918f87"},
    archive_bytes=4_996_300_000,
)
