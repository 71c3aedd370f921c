"""Tiny-ImageNet (Stanford CS231n): 200 classes of ImageNet at 64 x 64 pixels, 500 training images each.

Accuracy is measured on its 10,000 validation images: the labels of its test images are not public. Its authors give no
md5; this one stands alike in several independent public programs and logs. Torchvision has no class for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from vitinit.benchmark.datasets.archives.archived import Archived, Listing

FILE = "tiny-imagenet-200.zip"


@dataclass(frozen=True, eq=False, kw_only=True)
class TinyImageNet(Archived):
    """Classes by their WordNet numbers, in sorted order.

    Attributes:
        url: Where the archive is.
    """

    url: str

    def listing(self, root: Path) -> Listing:
        """Training images lie in the folder of their class; a file says the class of each validation image."""
        from torchvision.datasets.utils import download_and_extract_archive

        download_and_extract_archive(self.url, str(root), md5=self.files[FILE])
        folder = root / FILE.removesuffix(".zip")
        classes = sorted((folder / "wnids.txt").read_text().split())
        label = {name: number for number, name in enumerate(classes)}
        train = [(file, label[file.parts[-3]]) for file in sorted(folder.glob("train/*/images/*.JPEG"))]
        lines = [line.split("\t") for line in (folder / "val/val_annotations.txt").read_text().splitlines()]
        return Listing(tuple(classes), train, [(folder / "val/images" / line[0], label[line[1]]) for line in lines])


TINY_IMAGENET = TinyImageNet(
    name="tiny-imagenet",
    title="Tiny-ImageNet",
    images=(100_000, 10_000),
    classes=200,
    url="http://cs231n.stanford.edu/tiny-imagenet-200.zip",
    files={FILE: "90528d7ca1a48142e341f4ef8d21d0de"},
    archive_bytes=248_100_000,
)
