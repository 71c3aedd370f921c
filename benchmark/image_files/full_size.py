"""Images by number, each decoded in its own size when it is used: what is cropped anew in each epoch.

They come from a packed dataset (`packed.py`), from image files (`Files`) or from arrays (`Pixels`); whoever crops them
does not see which.
"""

from __future__ import annotations

import hashlib
import io
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps

from vitinit.benchmark.image_files.arrays import Statistics, levels, statistics
from vitinit.benchmark.image_files.images import IMAGE_FORMATS, no_bombs, opened
from vitinit.benchmark.image_files.subset import parts
from vitinit.benchmark.spec import DatasetSpec
from vitinit.initializers.errors import VitinitError

FORMATS = tuple(sorted({*IMAGE_FORMATS.values(), "GIF"}))
"""PIL's names of what is decoded; Pets has a few GIFs with a JPEG's name."""


class FullSize(ABC):
    """A split whose images stay as they are.

    Attributes:
        labels: int64, N, an index into the classes.
    """

    labels: torch.Tensor

    @abstractmethod
    def image(self, number: int) -> Image.Image:
        """One image, decoded, RGB, in its own size. Safe to call from several threads.

        Raises:
            VitinitError: it cannot be read, or is not what it was when the dataset was opened.
        """

    @abstractmethod
    def part(self, numbers: np.ndarray) -> FullSize:
        """Some of its images, in this order."""

    @abstractmethod
    def contents(self) -> Iterator[bytes | memoryview]:
        """Return the bytes of images and labels that a checksum covers."""


@dataclass(frozen=True)
class FullSizeData:
    """A dataset that is opened, and whose images are decoded when they are used.

    Attributes:
        train: The training split, or the part of it that the spec asks for.
        held_out: What accuracy is measured on: the test split, or the part of the training split that the spec takes
            for validation.
        classes: The class names in the order of the labels.
        mean: Mean per channel, pixels in 0..1.
        std: Standard deviation per channel, pixels in 0..1.
        checksum: sha256 (hex) over `contents` of `train` and `held_out`.
        image_size: Side of the images that the loader makes, in pixels.
    """

    train: FullSize
    held_out: FullSize
    classes: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    checksum: str
    image_size: int


Opened = tuple[FullSize, FullSize, tuple[str, ...], Statistics]
"""Training split and test split, whole; the classes; mean and std."""


def chosen(opened: Opened, spec: DatasetSpec, image_size: int, draw: int) -> FullSizeData:
    """The part of a dataset that a spec asks for; `draw` is which subset, where it is redrawn by seed.

    Raises:
        VitinitError: `train_size` and `val_size` do not fit.
    """
    whole, held_out, classes, (mean, std) = opened
    train, val = parts(whole.labels.numpy(), spec, len(classes), draw)
    if spec.evaluate_on == "val":
        held_out = whole.part(val)
    checksum = hashlib.sha256()
    for split in (taken := whole.part(train), held_out):
        for content in split.contents():
            checksum.update(content)
    return FullSizeData(taken, held_out, classes, mean, std, checksum.hexdigest(), image_size)


@dataclass(frozen=True)
class Pixels(FullSize):
    """Images that are in memory: uint8, N x 3 x H x W."""

    images: torch.Tensor
    labels: torch.Tensor

    def image(self, number: int) -> Image.Image:
        """One image."""
        return Image.fromarray(self.images[number].permute(1, 2, 0).contiguous().numpy())

    def part(self, numbers: np.ndarray) -> Pixels:
        """Some of its images, in this order."""
        return Pixels(self.images[numbers], self.labels[numbers])

    def contents(self) -> Iterator[bytes | memoryview]:
        """Pixels and labels."""
        yield self.images.contiguous().numpy().data
        yield self.labels.numpy().data


@dataclass(frozen=True)
class Files(FullSize):
    """Image files, each checked whenever it is read against its sha256 when the dataset was opened.

    Attributes:
        sha256: uint8, N x 32.
    """

    files: tuple[Path, ...]
    labels: torch.Tensor
    sha256: np.ndarray

    def image(self, number: int) -> Image.Image:
        """One image."""
        path = self.files[number]
        try:
            content = path.read_bytes()
            if hashlib.sha256(content).digest() != self.sha256[number].tobytes():
                raise VitinitError(f"the image {path} has changed since the run began")
            with opened(io.BytesIO(content), FORMATS) as image:
                return image.convert("RGB")
        except OSError as error:
            raise VitinitError(f"cannot read the image {path}: {error}") from error

    def part(self, numbers: np.ndarray) -> Files:
        """Some of its images, in this order."""
        return Files(tuple(self.files[number] for number in numbers), self.labels[numbers], self.sha256[numbers])

    def contents(self) -> Iterator[bytes | memoryview]:
        """Digests of the files, and labels."""
        yield self.sha256.tobytes()
        yield self.labels.numpy().data


def read_files(files: Sequence[Path], labels: torch.Tensor, image_size: int) -> tuple[Files, Statistics]:
    """Read every file once: that each can be decoded is known before a run begins, and so are the statistics.

    Args:
        files: in the order of the labels.
        labels: int64, N.
        image_size: of the images whose statistics are taken, in pixels: their shorter side is brought to this size,
            and they are cropped at the centre, as where they are decoded beforehand.

    Raises:
        VitinitError: one cannot be used.
    """

    def look(path: Path) -> tuple[bytes, np.ndarray]:
        try:
            content = path.read_bytes()
            pixels = centre(io.BytesIO(content), image_size)
        except Exception as error:  # PIL's decoders raise errors of many types on damaged files
            raise unusable(path, error) from error
        return hashlib.sha256(content).digest(), levels(torch.from_numpy(pixels).permute(2, 0, 1)[None])

    digests, counts = np.zeros((len(files), 32), np.uint8), np.zeros((3, 256), np.int64)
    with no_bombs(), ThreadPoolExecutor(max(1, torch.get_num_threads())) as pool:
        try:
            for number, (digest, found) in enumerate(pool.map(look, files)):
                digests[number] = np.frombuffer(digest, np.uint8)
                counts += found
        finally:
            pool.shutdown(cancel_futures=True)
    return Files(tuple(files), labels, digests), statistics(counts)


def centre(source: Path | io.BytesIO, size: int) -> np.ndarray:
    """An image file as uint8, size x size x 3: its shorter side resized (bilinear), cropped at the centre."""
    with opened(source, FORMATS) as image:
        # Crop and resize in one step: a very long image never exists at its full resized length.
        return np.array(ImageOps.fit(image.convert("RGB"), (size, size), Image.Resampling.BILINEAR))


def unusable(path: Path, error: Exception) -> VitinitError:
    """Return the message for an image file that cannot be decoded."""
    return VitinitError(f"cannot use the image {path}: {' '.join(str(error).split())}")
