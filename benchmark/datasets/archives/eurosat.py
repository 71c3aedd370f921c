"""EuroSAT (Helber, Bischke, Dengel and Borth, 2019), RGB: land use in 27,000 satellite images of 64 x 64 pixels.

Nobody published a split: a fifth of each class is held out for testing, the same as of a `folder`. That is ours.
"""

from __future__ import annotations

from vitinit.benchmark.datasets.archives.archived import Archive, ArchiveContents, Archived, Arranged


class EuroSAT(Archived):
    """One folder a class."""

    def arranged(self, found: ArchiveContents) -> Arranged:
        """The class is in the name, as in `2750/River/River_1.jpg`."""
        from vitinit.benchmark.image_files.subset import held_out_fifth

        files: dict[str, list[str]] = {}
        for name in sorted(name for name in found.sizes if name.startswith("2750/") and name.endswith(".jpg")):
            files.setdefault(name.split("/")[1], []).append(name)
        arranged = Arranged(tuple(sorted(files)), [], [])
        for label, name in enumerate(arranged.classes):
            for split, part in zip(arranged[1:], held_out_fifth(files[name]), strict=True):
                split += [(image, label) for image in part]
        return arranged


EUROSAT = EuroSAT(
    name="eurosat",
    title="EuroSAT",
    images=(21_600, 5_400),
    classes=10,
    archives={
        "EuroSAT.zip": Archive(
            "https://huggingface.co/datasets/torchgeo/eurosat/resolve/c877bcd43f099cd0196738f714544e355477f3fd/EuroSAT.zip",
            "c8fa014336c82ac7804f0398fcb19387",
        )
    },
)
