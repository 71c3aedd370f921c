"""Images with their labels: opened by number, or decoded at their final size as uint8 tensors."""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO

import numpy as np
import torch
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor
from torch.nn import functional as F

from vitinit.benchmark.datasets.registry import Opened, a_fifth, duplicates
from vitinit.initializers.errors import VitinitError
from vitinit.initializers.plugins import imported

FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
"""PIL's names of what is decoded, whatever the extension; Pets has a few GIFs with a JPEG's name."""
BEHIND = (255, 255, 255)
"""Colour, white, on which a transparent image lies."""
DEEP = re.compile(r";16[BLN]|'ppm.*(\d{4}|[3-9]\d\d|2[6-9]\d|25[6-9])\)\)")
"""Channels of 16 bits, and a PPM whose white is above 255, in PIL's plan of decoding (`tile`)."""
IGNORED = 255
"""In a mask: a pixel that counts neither in training nor in what is measured."""

Statistics = tuple[tuple[float, ...], tuple[float, ...]]
"""Mean and standard deviation of each channel, pixels in 0..1."""

CHUNK = 1024
"""Number of images that are decoded at once where not all of them are kept."""


@dataclass(frozen=True)
class Split:
    """Images and their labels. The images are in memory, or stay where they are until they are asked for.

    Attributes:
        images: uint8, N x 3 x S x S, RGB, of any side S. None: they are not in memory.
        labels: int64, N, an index into the classes. Of a dense dataset masks, uint8, N x S x S: such, or `IGNORED`.
        read: gives an image that is not in memory by its number, RGB, in its own size. Safe to call from threads.
        digest: gives the bytes that a checksum covers of such an image, by its number; default: the number itself.
    """

    images: Tensor | None = field(repr=False)
    labels: Tensor
    read: Callable[[int], Image.Image] | None = None
    digest: Callable[[int], bytes] = lambda number: number.to_bytes(8, "little")

    def image(self, number: int) -> Image.Image:
        """One image, RGB, in its own size."""
        if self.images is None:
            assert self.read
            return self.read(number)
        return Image.fromarray(self.images[number].permute(1, 2, 0).contiguous().numpy())

    def content(self, number: int) -> bytes:
        """Return the bytes that a checksum covers of an image in its own size."""
        return self.digest(number) if self.images is None else self.images[number].numpy().tobytes()

    def sized(self, size: int) -> Tensor:
        """All of its images, uint8, N x 3 x size x size.

        Pixels are resized (bilinear, antialiased); of other images the shorter side is resized, and the centre taken.
        """
        if self.images is not None:
            if self.images.shape[-1] == size:
                return self.images.contiguous()
            return F.interpolate(self.images, (size, size), mode="bilinear", antialias=True).contiguous()
        images = torch.empty(len(self.labels), 3, size, size, dtype=torch.uint8)
        for image, pixels in zip(images, self.arrays(partial(centre, size=size)), strict=True):
            image.copy_(torch.from_numpy(pixels).permute(2, 0, 1))
        return images

    def arrays(self, of: Callable[[Image.Image], np.ndarray]) -> Iterator[np.ndarray]:
        """An array of each image, made in as many threads as torch may use."""
        with ThreadPoolExecutor(max(1, torch.get_num_threads())) as pool:
            try:
                yield from pool.map(lambda number: of(self.image(number)), range(len(self.labels)))
            finally:
                pool.shutdown(cancel_futures=True)

    def masks(self, size: int) -> Tensor:
        """The labels; masks, if they are some, with the nearest pixel's class at size x size."""
        if self.labels.ndim == 1 or self.labels.shape[-1] == size:
            return self.labels
        return F.interpolate(self.labels[:, None], (size, size), mode="nearest-exact")[:, 0]

    def part(self, numbers: Tensor) -> Split:
        """Return the split restricted to these images, in this order; the split itself for all of them in order."""
        if torch.equal(numbers, torch.arange(len(self.labels))):
            return self
        listed = numbers.tolist()
        return Split(
            None if self.images is None else self.images[numbers],
            self.labels[numbers],
            read=lambda number: self.image(listed[number]),
            digest=lambda number: self.content(listed[number]),
        )

    def a_fifth_held_out(self, classes: tuple[str, ...]) -> tuple[Split, Split]:
        """Two parts, for training and test: the same fifth of each class always.

        Raises:
            VitinitError: a class has one image.
        """
        train, test = map(torch.from_numpy, a_fifth(self.labels.numpy(), classes))
        return self.part(train), self.part(test)


def encoded(labels: Tensor, content: Callable[[int], bytes], name: Callable[[int], str]) -> Split:
    """A split of image files, each decoded when it is asked for.

    Args:
        labels: int64, N.
        content: gives the bytes of a file by its number.
        name: what a message calls a file that cannot be used.
    """

    def read(number: int) -> Image.Image:
        with imported(f"cannot use the image {name(number)}", VitinitError):  # PIL raises errors of many types
            return read_image(io.BytesIO(content(number)))

    return Split(None, labels, read, lambda number: hashlib.sha256(content(number)).digest())


@dataclass(frozen=True)
class Data:
    """A dataset opened for training.

    Attributes:
        train: The training split, or the part of it that the spec asks for.
        held_out: What accuracy is measured on: the whole test split, or the validation part of the training split.
        classes: The class names in the order of the labels.
        mean: Mean of the whole training split per channel, pixels in 0..1.
        std: Standard deviation of the whole training split per channel, pixels in 0..1; never 0.
        checksum: sha256 (hex) over images and labels of `train` and `held_out`: pixels as they are here, or else
            `Split.content`.
        image_size: Side of the images in pixels: here, or as a loader makes them of those that are not in memory.
        file: The .beton in which FFCV finds the images, those of `train` first.
        jpegs: It holds JPEGs of several sizes; else pixels at the final size.
    """

    train: Split
    held_out: Split
    classes: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    checksum: str
    image_size: int
    file: Path | None = None
    jpegs: bool = False

    def duplicates(self) -> list[str]:
        """Return lines on images that are there more than once, pixel for pixel or byte for byte."""
        trained, held_out = (
            [(hash(split.content(n)), hash(label.numpy().tobytes())) for n, label in enumerate(split.labels)]
            for split in (self.train, self.held_out)
        )
        return duplicates(trained, held_out)


def split_up(dataset: Opened, numbers: Iterable[np.ndarray], on_test: bool, size: int, decode: bool) -> Data:
    """Return the training split and the one that accuracy is measured on: the test split, or else the validation part.

    Args:
        dataset: all of it.
        numbers: of the training images that are trained on, and that are held out for validation.
        on_test: accuracy is measured on the test split.
        size: side of the images, in pixels.
        decode: all images are decoded at this size. Otherwise they are cropped in their own size, anew in each epoch;
            where the statistics are not known all are decoded once, so that a damaged one stops a run at its start.
    """
    train, known = dataset.train, dataset.statistics
    if known is None:
        if decode:
            train = Split(train.sized(size), train.labels)
        else:
            statistics(dataset.test, size)
    mean, std = known or statistics(train, size)
    splits, checksum = [], hashlib.sha256()
    chosen, val = (train.part(torch.from_numpy(part)) for part in numbers)
    for split in (chosen, dataset.test if on_test else val):
        if decode:
            images = split.sized(size)
            checksum.update(images.numpy().data)
            split = Split(images, split.masks(size))
        else:
            for number in range(len(split.labels)):
                checksum.update(split.content(number))
            split = Split(None, split.labels, split.image, split.content)
        checksum.update(split.labels.numpy().data)
        splits.append(split)
    first, second = splits
    return Data(first, second, dataset.classes, mean, std, checksum.hexdigest(), size)


def statistics(split: Split, size: int) -> Statistics:
    """Exact, of the images at a size, from the count of each of the 256 levels in each channel."""
    counts = np.zeros((3, 256), np.int64)
    for numbers in torch.arange(len(split.labels)).split(CHUNK):
        channels = split.part(numbers).sized(size).transpose(0, 1).flatten(1)
        counts += np.stack([channel.bincount(minlength=256).numpy() for channel in channels])
    level = np.arange(256) / 255
    mean, std = [], []
    for count in counts:
        share = count / count.sum()
        mean.append(float(share @ level))
        # A channel of one constant value is divided by 1, not by 0.
        std.append(float(np.sqrt(share @ (level - mean[-1]) ** 2)) or 1.0)
    return tuple(mean), tuple(std)


# --- image files ---


def read_image(source: Path | IO[bytes], first: bool = False) -> Image.Image:
    """Decode an image: RGB, upright as its EXIF data say, what is transparent lying on white.

    Args:
        source: the file, or its content.
        first: of several frames or pages take the first.

    Raises:
        VitinitError: it is no such image, or has more than 8 bits a channel. PIL raises errors of many types besides.
    """
    try:
        # Without formats, a file could choose any decoder by its contents, whatever its extension.
        opened = Image.open(source, formats=FORMATS)
    except UnidentifiedImageError:  # whose own text is the address of the bytes
        raise VitinitError(f"it is no {', '.join(FORMATS[:-1])} or {FORMATS[-1]}") from None
    with opened:
        if Image.MAX_IMAGE_PIXELS and opened.width * opened.height > Image.MAX_IMAGE_PIXELS:
            raise VitinitError(f"{opened.width} x {opened.height} pixels: too many to be decoded")
        # PIL clips deeper grey pixels at 255 instead of scaling them, and cuts deeper colours
        if opened.mode[0] in "IF" or DEEP.search(str(opened.tile)):
            raise VitinitError(f"more than 8 bits a channel (mode {opened.mode})")
        # a photograph of some telephones is followed by previews of it (MPO)
        if not first and getattr(opened, "is_animated", False) and opened.format != "MPO":
            raise VitinitError("several frames or pages, of which the first alone would be read")
        image = ImageOps.exif_transpose(opened)
        if image.has_transparency_data:
            image = image.convert("RGBA")
            image = Image.alpha_composite(Image.new("RGBA", image.size, BEHIND), image)
        return image.convert("RGB")


def centre(image: Image.Image, size: int) -> np.ndarray:
    """An RGB image as uint8, size x size x 3: its shorter side resized (bilinear), cropped at the centre."""
    # Crop and resize in one step: a very long image never exists at its full resized length.
    return np.array(ImageOps.fit(image, (size, size), Image.Resampling.BILINEAR))
