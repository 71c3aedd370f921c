"""Tiny-ImageNet (Stanford CS231n): 200 classes of ImageNet at 64 x 64 pixels, 500 training images each.

Accuracy is measured on its 10,000 validation images: the labels of its test images are not public. Its authors give no
md5; this one, and the size, stand alike in several independent public programs and logs.
"""

from __future__ import annotations

from vitinit.benchmark.datasets.archives.archived import Archive, ArchiveContents, Archived, Arranged

ROOT = "tiny-imagenet-200"


class TinyImageNet(Archived):
    """Classes by their WordNet numbers, in sorted order."""

    def arranged(self, found: ArchiveContents) -> Arranged:
        """Training images lie in the folder of their class; a file says the class of each validation image."""
        ids, annotations = (found.texts[name].decode() for name in self.label_files)
        classes = sorted(ids.split())
        label = {name: number for number, name in enumerate(classes)}
        train = [
            (name, label[name.split("/")[2]])
            for name in sorted(found.sizes)
            if name.startswith(f"{ROOT}/train/") and name.endswith(".JPEG")
        ]
        lines = [line.split("\t") for line in annotations.splitlines()]
        return Arranged(tuple(classes), train, [(f"{ROOT}/val/images/{line[0]}", label[line[1]]) for line in lines])


TINY_IMAGENET = TinyImageNet(
    name="tiny-imagenet",
    title="Tiny-ImageNet",
    images=(100_000, 10_000),
    classes=200,
    archives={
        "tiny-imagenet-200.zip": Archive(
            "http://cs231n.stanford.edu/tiny-imagenet-200.zip", "90528d7ca1a48142e341f4ef8d21d0de", 248_100_043
        )
    },
    label_files=(f"{ROOT}/wnids.txt", f"{ROOT}/val/val_annotations.txt"),
)
