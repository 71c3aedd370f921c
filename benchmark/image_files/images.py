"""Image files: which ones of a folder count, and how one is read."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import IO, TYPE_CHECKING

from vitinit.initializers.errors import VitinitError, os_errors

if TYPE_CHECKING:
    import numpy as np
    from PIL import Image

EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".pgm", ".bmp", ".tif", ".tiff", ".webp")
"""Files of a folder dataset that count as images: those of `torchvision.datasets.ImageFolder`."""
FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
"""PIL's names of what is decoded, whatever the extension; Pets has a few GIFs with a JPEG's name."""
BEHIND = (255, 255, 255)
"""Colour, white, on which a transparent image lies."""


def below(folder: Path) -> list[Path]:
    """Return the files below a folder in sorted order, without names that begin with a dot; links are followed."""

    def stop(error: OSError) -> None:
        raise VitinitError(f"cannot read {error.filename}: {error.strerror}")

    paths: list[Path] = []
    for home, folders, files in os.walk(folder, onerror=stop, followlinks=True):
        folders[:] = [name for name in folders if name[0] != "."]
        if Path(home).is_symlink() and os.path.realpath(home) in map(os.path.realpath, Path(home).parents):
            raise VitinitError(f"{home}: is a link that leads back to a folder above it")
        paths += [Path(home, name) for name in files if name[0] != "."]
    return sorted(paths)


def stamp(files: Iterable[Path], root: Path) -> str:
    """Return a hash of names, sizes and times of files: while it stays, nobody has to read them again."""
    digest = hashlib.sha256()
    for file in files:
        with os_errors(f"cannot read {file}"):
            status = file.stat()
        line = f"{os.path.relpath(file, root)}\0{status.st_size}\0{status.st_mtime_ns}\0"
        digest.update(line.encode(errors="surrogateescape"))
    return digest.hexdigest()


def read_image(source: Path | IO[bytes]) -> Image.Image:
    """Decode an image: RGB, upright as its EXIF data say, what is transparent lying on white.

    Raises:
        VitinitError: it is no such image, or has more than 8 bits a channel. PIL raises errors of many types besides.
    """
    from PIL import Image, ImageOps, UnidentifiedImageError

    try:
        # Without formats, a file could choose any decoder by its contents, whatever its extension.
        opened = Image.open(source, formats=FORMATS)
    except UnidentifiedImageError:  # whose own text is the address of the bytes
        raise VitinitError(f"it is no {', '.join(FORMATS[:-1])} or {FORMATS[-1]}") from None
    with opened:
        if Image.MAX_IMAGE_PIXELS and opened.width * opened.height > Image.MAX_IMAGE_PIXELS:
            raise VitinitError(f"{opened.width} x {opened.height} pixels: too many to be decoded")
        # PIL clips deeper pixels at 255 instead of scaling them: an almost white image.
        if opened.mode[0] in "IF":
            raise VitinitError(f"more than 8 bits a channel (mode {opened.mode})")
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
