"""STL-10 (Coates, Lee and Ng, 2011): 96 x 96 pixels, 5,000 training and 8,000 test images of ten classes.

Its 100,000 images without labels are not used, and not kept.
"""

from __future__ import annotations

from pathlib import Path

from vitinit.benchmark.datasets.archives.archived import Archived, Listing


class STL10(Archived):
    """Bare pixels in a file for each split."""

    def listing(self, root: Path) -> Listing:
        """Every image becomes a PPM file: bare pixels too."""
        from torchvision.datasets import STL10

        def images(split: str) -> tuple[tuple[str, ...], list[tuple[Path, int]]]:
            found, files = STL10(root, split, download=True), []
            for number, pixels_CHW in enumerate(found.data):
                files.append(root / f"{split}-{number}.ppm")
                height, width = pixels_CHW.shape[1:]
                files[-1].write_bytes(f"P6 {width} {height} 255\n".encode() + pixels_CHW.transpose(1, 2, 0).tobytes())
            return tuple(found.classes), list(zip(files, found.labels.tolist(), strict=True))

        classes, train = images("train")
        return Listing(classes, train, images("test")[1])


STL_10 = STL10(
    name="stl10",
    title="STL-10",
    images=(5_000, 8_000),
    classes=10,
    files={"stl10_binary.tar.gz": "91f7769df0f17e558f3565bffb0c7dfb"},
    archive_bytes=2_640_400_000,
)
