"""Oxford 102 Flowers (Nilsback and Zisserman, 2008).

Its training split here is the published training and validation images together, 1,020 each (`trnid` and `valid`), as
is customary where it is learned from; the 6,149 test images are the published ones.
"""

from __future__ import annotations

import io

from vitinit.benchmark.datasets.archives.archived import Archive, ArchiveContents, Archived, Arranged

WHERE = "https://www.robots.ox.ac.uk/~vgg/data/flowers/102/"


class Flowers(Archived):
    """Classes have numbers only, from 1."""

    def arranged(self, found: ArchiveContents) -> Arranged:
        """Labels and splits by the numbers of images, from 1, in MATLAB files."""
        from scipy.io import loadmat

        labels, splits = (loadmat(io.BytesIO(found.texts[name])) for name in self.label_files)
        label = [int(number) - 1 for number in labels["labels"].flatten()]

        def images(*keys: str) -> list[tuple[str, int]]:
            numbers = [int(number) for key in keys for number in splits[key].flatten()]
            return [(f"jpg/image_{number:05}.jpg", label[number - 1]) for number in numbers]

        classes = tuple(f"{number + 1:03}" for number in range(max(label) + 1))
        return Arranged(classes, images("trnid", "valid"), images("tstid"))


FLOWERS = Flowers(
    name="flowers",
    title="Oxford 102 Flowers",
    images=(2_040, 6_149),
    classes=102,
    archives={
        "flowers-102/102flowers.tgz": Archive(
            WHERE + "102flowers.tgz", "52808999861908f626f3c1f4e79d11fa", 344_862_509
        ),
        "flowers-102/imagelabels.mat": Archive(WHERE + "imagelabels.mat", "e0620be6f572b9609742df49c70aed4d", 502),
        "flowers-102/setid.mat": Archive(WHERE + "setid.mat", "a5357ecc9cb78c4bef273ce3793fc85c", 14_989),
    },
    label_files=("imagelabels.mat", "setid.mat"),
)
