"""Oxford-IIIT Pets with their masks (trimaps): which pixel belongs to the animal? The border is not counted."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from vitinit.benchmark.datasets.archives.pets import PETS
from vitinit.benchmark.datasets.dataset import Arrays
from vitinit.benchmark.datasets.downloaded import Downloaded
from vitinit.benchmark.datasets.imagenet import IMAGENET
from vitinit.initializers.errors import VitinitError, plain

if TYPE_CHECKING:
    import numpy as np

SIDE = 128
"""Images and masks are first brought to so many pixels a side, whatever their shape; then to the model's size."""
IMAGES, ANNOTATIONS = PETS.files
"""Paths of the archives in the data folder."""
CLASSES = ("background", "pet")


class PetsMasks(Downloaded):
    """Trained on `trainval`, tested on `test`. Read from the two archives in each run: nothing is unpacked."""

    dense: ClassVar[bool] = True
    has_full_size: ClassVar[bool] = False

    def torchvision(self, root: Path, download: bool) -> tuple[Any, Any]:
        """The folder, and the names of the lists of both splits: torchvision downloads, and reads no archive."""
        if download:
            from torchvision.datasets import OxfordIIITPet

            OxfordIIITPet(root, download=True)
        return tuple((root, f"annotations/{name}.txt") for name in ("trainval", "test"))  # type: ignore[return-value]

    def arrays(self, train: Any, test: Any) -> tuple[Arrays, Arrays, tuple[str, ...]]:
        """Decoded: a mask takes the nearest pixel's class."""
        import numpy as np

        from vitinit.benchmark.image_files.images import no_bombs

        (root, *_), lists = train, [train[1], test[1]]
        images: dict[str, np.ndarray] = {}
        masks: dict[str, tuple[tuple[int, int], np.ndarray]] = {}
        texts: dict[str, bytes] = {}
        for name, content in _files(root / ANNOTATIONS):
            if name in lists:
                texts[name] = content
            elif Path(name).match("annotations/trimaps/[!.]*.png"):
                masks[Path(name).stem] = _mask(content, f"{root / ANNOTATIONS}: {name}")
        if missing := [name for name in lists if name not in texts]:
            raise VitinitError(f"{root / ANNOTATIONS}: no {missing[0]}")
        splits = [_names(texts[name]) for name in lists]
        wanted = {name for split in splits for name in split}
        _check_all(wanted, masks, root / ANNOTATIONS)
        with no_bombs():
            for file, content in _files(root / IMAGES):
                name = Path(file).stem
                if name in wanted and file == f"images/{name}.jpg":
                    images[name] = _image(content, masks[name][0], f"{root / IMAGES}: {file}")
        _check_all(wanted, images, root / IMAGES)
        first, second = (
            (np.stack([images[name] for name in split]), np.stack([masks[name][1] for name in split]))
            for split in splits
        )
        return first, second, CLASSES


PETS_MASKS = PetsMasks(
    name="pets-masks",
    images=PETS.images,
    classes=len(CLASSES),
    statistics=IMAGENET.statistics,
    files=PETS.files,
)


def _files(archive: Path) -> Iterator[tuple[str, bytes]]:
    """Names and contents of the files in a .tar.gz whose md5 is right."""
    with tarfile.open(archive, "r|*") as files:
        for entry in files:
            if entry.isreg() and (file := files.extractfile(entry)):
                yield entry.name, file.read()


def _names(content: bytes) -> list[str]:
    """Return the image names of lines such as `Abyssinian_100 1 1 1`."""
    return [line.split()[0] for line in content.decode().splitlines() if line.strip() and line[0] != "#"]


def _check_all(wanted: Iterable[str], found: Mapping[str, Any], archive: Path) -> None:
    if absent := sorted(name for name in wanted if name not in found):
        raise VitinitError(f"{archive}: nothing of {plain(absent[0], 100)}, which the lists name")


def _image(content: bytes, size: tuple[int, int], where: str) -> np.ndarray:
    """uint8, 3 x SIDE x SIDE."""
    import numpy as np
    from PIL import Image

    from vitinit.benchmark.image_files.images import opened
    from vitinit.benchmark.image_files.packed import FORMATS

    try:
        with opened(io.BytesIO(content), FORMATS) as image:
            if image.size != size:
                raise ValueError(f"{image.size[0]} x {image.size[1]} pixels, its mask has {size[0]} x {size[1]}")
            pixels = image.convert("RGB").resize((SIDE, SIDE), Image.Resampling.BILINEAR)
    except Exception as error:  # PIL's decoders raise errors of many types
        raise VitinitError(f"{where} cannot be used: {plain(str(error), 200)}") from error
    return np.asarray(pixels).transpose(2, 0, 1)


def _mask(content: bytes, where: str) -> tuple[tuple[int, int], np.ndarray]:
    """Width and height of a trimap, and its classes, uint8, SIDE x SIDE.

    In the file, 1 is the pet, 2 the background, 3 the border.
    """
    import numpy as np
    from PIL import Image

    from vitinit.benchmark.image_files.arrays import IGNORED
    from vitinit.benchmark.image_files.images import opened

    try:
        with opened(io.BytesIO(content), ("PNG",)) as image:
            size, levels = image.size, np.asarray(image.resize((SIDE, SIDE), Image.Resampling.NEAREST))
            if levels.ndim != 2 or not np.isin(levels, (1, 2, 3)).all():
                raise ValueError("a mask has the levels 1, 2 and 3")
    except Exception as error:
        raise VitinitError(f"{where} cannot be used: {plain(str(error), 200)}") from error
    return size, np.array([IGNORED, 1, 0, IGNORED], np.uint8)[levels]
