"""EuroSAT (Helber, Bischke, Dengel and Borth, 2019), RGB: land use in 27,000 satellite images of 64 x 64 pixels.

Nobody published a split: a fifth of each class is held out for testing, the same as of a `folder`. That is ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from vitinit.benchmark.datasets.archives.archived import Archived, Listing

FILE = "EuroSAT.zip"


@dataclass(frozen=True, eq=False, kw_only=True)
class EuroSAT(Archived):
    """One folder a class. Torchvision's own class wants the archive where the packed dataset lies.

    Attributes:
        url: Where the archive is, as in torchvision's class.
    """

    url: str

    def listing(self, root: Path) -> Listing:
        """In the order of the names."""
        from torchvision.datasets import ImageFolder
        from torchvision.datasets.utils import download_and_extract_archive

        from vitinit.benchmark.image_files.subset import held_out_fifth

        download_and_extract_archive(self.url, str(root), md5=self.files[FILE])
        images = ImageFolder(root / "2750")
        found = Listing(tuple(images.classes), [], [])
        for label in range(len(images.classes)):
            files = [Path(file) for file, its in images.samples if its == label]
            for split, part in zip(found[1:], held_out_fifth(files), strict=True):
                split += [(file, label) for file in part]
        return found


EUROSAT = EuroSAT(
    name="eurosat",
    title="EuroSAT",
    images=(21_600, 5_400),
    classes=10,
    url="https://huggingface.co/datasets/torchgeo/eurosat/resolve/c877bcd43f099cd0196738f714544e355477f3fd/EuroSAT.zip",
    files={FILE: "c8fa014336c82ac7804f0398fcb19387"},
    archive_bytes=100_000_000,
)
