"""STL-10 (Coates, Lee and Ng, 2011): 96 x 96 pixels, 5,000 training and 8,000 test images of ten classes.

Its 100,000 images without labels are not used, and not kept.
"""

from __future__ import annotations

from collections.abc import Iterator

from vitinit.benchmark.datasets.archives.archived import Archive, ArchiveContents, Archived, Arranged

SIDE = 96
ROOT = "stl10_binary"


class STL10(Archived):
    """Pixels in two files, labels in two others: numbers from 1, a byte each."""

    def arranged(self, found: ArchiveContents) -> Arranged:
        """Image `#N` of the file of pixels has label N."""
        train, test, names = (found.texts[name] for name in self.label_files)
        splits = (
            [(f"{ROOT}/{split}_X.bin#{number}", label - 1) for number, label in enumerate(labels)]
            for split, labels in (("train", train), ("test", test))
        )
        return Arranged(tuple(names.decode().split()), *splits)

    def images_in(self, content: bytes) -> Iterator[tuple[str, bytes]]:
        """Each image is red, green, blue, each of these column by column. As PPM: bare pixels too."""
        import numpy as np

        for number, pixels_CXY in enumerate(np.frombuffer(content, np.uint8).reshape(-1, 3, SIDE, SIDE)):
            header = f"P6 {SIDE} {SIDE} 255\n".encode()
            yield f"#{number}", header + pixels_CXY.transpose(2, 1, 0).tobytes()


STL_10 = STL10(
    name="stl10",
    title="STL-10",
    images=(5_000, 8_000),
    classes=10,
    archives={
        "stl10_binary.tar.gz": Archive(
            "http://ai.stanford.edu/~acoates/stl10/stl10_binary.tar.gz",
            "91f7769df0f17e558f3565bffb0c7dfb",
            2_640_397_119,
        )
    },
    label_files=(f"{ROOT}/train_y.bin", f"{ROOT}/test_y.bin", f"{ROOT}/class_names.txt"),
)
