"""Image files from somebody else: which files count, and reading one without trusting it."""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from PIL import Image, UnidentifiedImageError

from vitinit.initializers.errors import VitinitError

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


def class_folders(folder: Path) -> list[Path]:
    """The folders of the classes in sorted order. Names that begin with a dot are passed over."""
    return sorted(entry for entry in folder.iterdir() if entry.is_dir() and entry.name[0] != ".")


def image_files(class_dir: Path, root: Path, extensions: Collection[str]) -> list[Path]:
    """The image files of one class in sorted order. Names that begin with a dot are passed over.

    Raises:
        VitinitError: there is none, or one leads to something that is not a file inside `root`.
    """
    files = sorted(file for file in class_dir.iterdir() if file.suffix.lower() in extensions and file.name[0] != ".")
    if not files:
        raise VitinitError(f"the class folder {class_dir} has no images ({', '.join(extensions)})")
    for file in files:
        target = Path(os.path.realpath(file))  # Path.resolve raises on a loop before Python 3.13
        if not (target.is_file() and target.is_relative_to(root)):
            raise VitinitError(f"{file} is not a file inside {root} (it leads to {target})")
    return files


def image_names(root: Path) -> list[str]:
    """The names of all image files of a folder dataset, of either layout, as CLASS/FILE or SPLIT/CLASS/FILE.

    Quick: no file is looked at.

    Raises:
        VitinitError: a folder cannot be listed.
    """
    try:
        splits = [root / name for name in ("train", "test", "val") if (root / name).is_dir()]
        return [
            f"{folder.relative_to(root).as_posix()}/{name}"
            for split in (splits if (root / "train").is_dir() else [root])
            for folder in class_folders(split)
            for name in sorted(entry.name for entry in os.scandir(folder))
            if name[0] != "." and Path(name).suffix.lower() in IMAGE_FORMATS
        ]
    except OSError as error:
        raise VitinitError(f"the images in {root} cannot be listed: {error}") from error


def passed_over(root: Path) -> Counter[str]:
    """Count files of a folder dataset that are no image of a class, by extension. Quick, as `image_names`.

    Names that begin with a dot are not counted.
    """
    found: Counter[str] = Counter()
    split = (root / "train").is_dir()
    for folder in [root / name for name in ("train", "test", "val")] if split else [root]:
        for entry in os.scandir(folder) if folder.is_dir() else ():
            if entry.name[0] == ".":
                continue
            if not entry.is_dir():
                found[f"{_kind(entry)} outside of a class folder"] += 1
                continue
            for inner in os.scandir(entry.path):
                if inner.name[0] != "." and (inner.is_dir() or Path(inner.name).suffix.lower() not in IMAGE_FORMATS):
                    found[_kind(inner)] += 1
    return found


def _kind(entry: os.DirEntry[str]) -> str:
    return "folder" if entry.is_dir() else Path(entry.name).suffix.lower() or "no extension"


@contextmanager
def no_bombs() -> Iterator[None]:
    """A small file that holds a huge image is an error inside, in every thread."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        yield


@contextmanager
def opened(source: Path | IO[bytes], formats: tuple[str, ...]) -> Iterator[Image.Image]:
    """An image that is not decoded yet.

    Args:
        source: a file, or its bytes.
        formats: PIL's names. Without them, a file can choose any decoder by its contents, whatever its extension.

    Raises:
        ValueError: it is no such image, or has more than 8 bits a channel.
    """
    try:
        image = Image.open(source, formats=formats)
    except UnidentifiedImageError:  # whose own text is the address of the bytes
        raise ValueError(f"it is no {', '.join(formats[:-1])} or {formats[-1]}") from None
    with image:
        # PIL clips deeper pixels at 255 instead of scaling them: an almost white image.
        if image.mode[0] in "IF":
            raise ValueError(f"more than 8 bits a channel (mode {image.mode})")
        yield image
