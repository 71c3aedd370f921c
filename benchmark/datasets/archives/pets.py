"""Oxford-IIIT Pets (Parkhi, Vedaldi, Zisserman and Jawahar, 2012): 37 breeds of cats and dogs."""

from __future__ import annotations

from pathlib import Path

from vitinit.benchmark.datasets.archives.archived import Archived, Listing


class Pets(Archived):
    """Trained on `trainval`, tested on `test`; the breed is the class, spelt as in the names of the images."""

    def listing(self, root: Path) -> Listing:
        """In the order of the published lists."""
        from torchvision.datasets import OxfordIIITPet

        parts = (OxfordIIITPet(root, split, download=True) for split in ("trainval", "test"))
        train, test = (list(zip(part._images, part._labels, strict=True)) for part in parts)
        breeds = {label: file.stem.rpartition("_")[0] for file, label in train + test}
        return Listing(tuple(breeds[label] for label in sorted(breeds)), train, test)


PETS = Pets(
    name="pets",
    title="Oxford-IIIT Pets",
    images=(3_680, 3_669),
    classes=37,
    files={
        "oxford-iiit-pet/images.tar.gz": "5c4f3ee8e5d25df40f4fd59a7f44e54c",
        "oxford-iiit-pet/annotations.tar.gz": "95a8c909bbe2e81eed6a22bccdf3f68f",
    },
    archive_bytes=811_100_000,
)
