"""Food-101 (Bossard et al., 2014): 101 dishes, 750 training and 250 test images each."""

from __future__ import annotations

from vitinit.benchmark.datasets.archives.archived import Archive, ArchiveContents, Archived, Arranged


class Food101(Archived):
    """The labels of the training images are noisy on purpose."""

    def arranged(self, found: ArchiveContents) -> Arranged:
        """`train.txt` and `test.txt` name the images, as CLASS/NUMBER."""
        lists = [found.texts[name].decode().split() for name in self.label_files]
        classes = sorted({line.split("/")[0] for line in lists[0]})
        label = {name: number for number, name in enumerate(classes)}
        train, test = (
            [(f"food-101/images/{line}.jpg", label[line.split("/")[0]]) for line in lines] for lines in lists
        )
        return Arranged(tuple(classes), train, test)


FOOD101 = Food101(
    name="food101",
    title="Food-101",
    images=(75_750, 25_250),
    classes=101,
    archives={
        "food-101.tar.gz": Archive(
            "http://data.vision.ee.ethz.ch/cvl/food-101.tar.gz", "85eeb15f3717b99a5da872d97d918f87", 4_996_278_331
        )
    },
    label_files=("food-101/meta/train.txt", "food-101/meta/test.txt"),
)
