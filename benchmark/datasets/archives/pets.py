"""Oxford-IIIT Pets (Parkhi, Vedaldi, Zisserman and Jawahar, 2012): 37 breeds of cats and dogs."""

from __future__ import annotations

from vitinit.benchmark.datasets.archives.archived import Archive, ArchiveContents, Archived, Arranged

WHERE = "https://www.robots.ox.ac.uk/~vgg/data/pets/data/"


class Pets(Archived):
    """Trained on `trainval`, tested on `test`; the breed is the class."""

    def arranged(self, found: ArchiveContents) -> Arranged:
        """Lines as `Abyssinian_100 1 1 1`: image, breed, species, breed of that species, all from 1."""
        breeds: dict[int, str] = {}

        def images(name: str) -> list[tuple[str, int]]:
            lines = [line.split() for line in found.texts[name].decode().splitlines()]
            listed = [(line[0], int(line[1]) - 1) for line in lines if line and not line[0].startswith("#")]
            breeds.update({label: image.rpartition("_")[0] for image, label in listed})
            return [(f"images/{image}.jpg", label) for image, label in listed]

        train, test = (images(name) for name in self.label_files)
        return Arranged(tuple(breeds[label] for label in sorted(breeds)), train, test)


PETS = Pets(
    name="pets",
    title="Oxford-IIIT Pets",
    images=(3_680, 3_669),
    classes=37,
    archives={
        "oxford-iiit-pet/images.tar.gz": Archive(
            WHERE + "images.tar.gz", "5c4f3ee8e5d25df40f4fd59a7f44e54c", 791_918_971
        ),
        "oxford-iiit-pet/annotations.tar.gz": Archive(
            WHERE + "annotations.tar.gz", "95a8c909bbe2e81eed6a22bccdf3f68f", 19_173_078
        ),
    },
    label_files=("annotations/trainval.txt", "annotations/test.txt"),
)
