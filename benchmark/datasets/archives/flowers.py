"""Oxford 102 Flowers (Nilsback and Zisserman, 2008).

Its training split here is the published training and validation images together, 1,020 each (`trnid` and `valid`), as
is customary where it is learned from; the 6,149 test images are the published ones.
"""

from __future__ import annotations

from pathlib import Path

from vitinit.benchmark.datasets.archives.archived import Archived, Listing


class Flowers(Archived):
    """Classes have numbers only, from 1."""

    def listing(self, root: Path) -> Listing:
        """In the order of the published lists."""
        from torchvision.datasets import Flowers102

        parts = (Flowers102(root, split, download=True) for split in ("train", "val", "test"))
        train, val, test = (list(zip(part._image_files, part._labels, strict=True)) for part in parts)
        return Listing(tuple(f"{number + 1:03}" for number in range(self.classes)), train + val, test)


FLOWERS = Flowers(
    name="flowers",
    title="Oxford 102 Flowers",
    images=(2_040, 6_149),
    classes=102,
    files={
        "flowers-102/102flowers.tgz": "52808999861908f626f3c1f4e79d11fa",
        "flowers-102/imagelabels.mat": "e0620be6f572b9609742df49c70aed4d",
        "flowers-102/setid.mat": "a5357ecc9cb78c4bef273ce3793fc85c",
    },
    archive_bytes=344_900_000,
)
