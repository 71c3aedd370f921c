"""Image files: which ones of a folder count, and how one is read."""

from __future__ import annotations

import unicodedata
from pathlib import Path
from typing import IO, TYPE_CHECKING

from vitinit.initializers.errors import VitinitError

if TYPE_CHECKING:
    import numpy as np
    from PIL import Image

IMAGE_FORMATS = {
    ".jpg": "JPEG",
    ".jpeg": "JPEG",
    ".png": "PNG",
    ".ppm": "PPM",
    ".pgm": "PPM",
    ".bmp": "BMP",
    ".tif": "TIFF",
    ".tiff": "TIFF",
    ".webp": "WEBP",
}
"""Extensions that make a file of a folder dataset an image, and PIL's name of their format."""
FORMATS = tuple(sorted({*IMAGE_FORMATS.values(), "GIF"}))
"""PIL's names of what is decoded, whatever the extension; Pets has a few GIFs with a JPEG's name."""
BEHIND = (255, 255, 255)
"""Colour, white, on which a transparent image lies."""


def class_folders(folder: Path) -> dict[str, Path]:
    """The folder of each class by its name (Unicode NFC), in sorted order. Names that begin with a dot are passed over.

    Raises:
        VitinitError: a class is there twice, in two spellings of its letters.
    """
    found: dict[str, Path] = {}
    for entry in sorted(each for each in folder.iterdir() if each.is_dir() and each.name[0] != "."):
        name = unicodedata.normalize("NFC", entry.name)
        if name in found:
            raise VitinitError(f"{folder}: two folders of class {name}, whose letters are encoded in two ways")
        found[name] = entry
    return found


def image_files(class_dir: Path) -> list[Path]:
    """The image files of one class in sorted order. Names that begin with a dot are passed over.

    Raises:
        VitinitError: there is none.
    """
    files = sorted(each for each in class_dir.iterdir() if each.suffix.lower() in IMAGE_FORMATS and each.name[0] != ".")
    if not files:
        raise VitinitError(f"the class folder {class_dir} has no images ({', '.join(IMAGE_FORMATS)})")
    return files


def read_image(source: Path | IO[bytes]) -> Image.Image:
    """Decode an image: RGB, upright as its EXIF data say, what is transparent lying on white.

    Raises:
        ValueError: it is no such image, or has more than 8 bits a channel. PIL raises errors of many types besides.
    """
    from PIL import Image, ImageOps, UnidentifiedImageError

    try:
        # Without formats, a file could choose any decoder by its contents, whatever its extension.
        opened = Image.open(source, formats=FORMATS)
    except UnidentifiedImageError:  # whose own text is the address of the bytes
        raise ValueError(f"it is no {', '.join(FORMATS[:-1])} or {FORMATS[-1]}") from None
    with opened:
        # PIL clips deeper pixels at 255 instead of scaling them: an almost white image.
        if opened.mode[0] in "IF":
            raise ValueError(f"more than 8 bits a channel (mode {opened.mode})")
        image = ImageOps.exif_transpose(opened)
        if image.has_transparency_data:
            image = image.convert("RGBA")
            image = Image.alpha_composite(Image.new("RGBA", image.size, BEHIND), image)
        return image.convert("RGB")


def centre(image: Image.Image, size: int) -> np.ndarray:
    """An RGB image as uint8, size x size x 3: its shorter side resized (bilinear), cropped at the centre."""
    import numpy as np
    from PIL import Image, ImageOps

    # Crop and resize in one step: a very long image never exists at its full resized length.
    return np.array(ImageOps.fit(image, (size, size), Image.Resampling.BILINEAR))
