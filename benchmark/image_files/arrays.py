"""Images with their labels: opened by number, or decoded at their final size as uint8 tensors."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional as F

from vitinit.benchmark.image_files.images import centre
from vitinit.benchmark.image_files.subset import held_out_fifth

IGNORED = 255
"""In a mask: a pixel that counts neither in training nor in what is measured."""

Statistics = tuple[tuple[float, ...], tuple[float, ...]]
"""Mean and standard deviation of each channel, pixels in 0..1."""

CHUNK = 1024
"""Number of images that are decoded at once where not all of them are kept."""


def numbered(number: int) -> bytes:
    """Content of an image whose bytes no checksum covers: its number."""
    return number.to_bytes(8, "little")


@dataclass(frozen=True)
class Source:
    """A split whose images stay as they are, on disk or in memory, until they are asked for.

    Attributes:
        labels: int64, N, an index into the classes. Of a dense dataset masks, uint8, N x S x S: such, or `IGNORED`.
        image: gives one image by its number, RGB, in its own size. Safe to call from several threads.
        pixels: uint8, N x 3 x S x S, of images that are in memory.
        content: gives what a checksum covers of an image in its own size, by its number.
    """

    labels: Tensor
    image: Callable[[int], Image.Image]
    pixels: Tensor | None = field(default=None, repr=False)
    content: Callable[[int], bytes] = numbered

    @classmethod
    def of_pixels(cls, pixels: Tensor, labels: Tensor) -> Source:
        """Images that are in memory, uint8, N x 3 x S x S, of any side S."""
        return cls(
            labels,
            image=lambda number: Image.fromarray(pixels[number].permute(1, 2, 0).contiguous().numpy()),
            pixels=pixels,
            content=lambda number: pixels[number].contiguous().numpy().tobytes(),
        )

    def sized(self, numbers: Tensor, size: int) -> Tensor:
        """Some of its images, uint8, N x 3 x size x size.

        Pixels are resized (bilinear, antialiased); of other images the shorter side is resized, and the centre taken.
        """
        if self.pixels is not None:
            chosen = self.pixels[numbers]
            if chosen.shape[-1] != size:
                chosen = F.interpolate(chosen, (size, size), mode="bilinear", antialias=True)
            return chosen.contiguous()
        images = torch.empty(len(numbers), 3, size, size, dtype=torch.uint8)

        def decode(place: int, number: int) -> None:
            images[place] = torch.from_numpy(centre(self.image(number), size)).permute(2, 0, 1)

        with ThreadPoolExecutor(max(1, torch.get_num_threads())) as pool:
            try:
                for _ in pool.map(decode, range(len(numbers)), numbers.tolist()):
                    pass
            finally:
                pool.shutdown(cancel_futures=True)
        return images

    def masks(self, size: int) -> Tensor:
        """The labels; masks, if they are some, with the nearest pixel's class at size x size."""
        if self.labels.ndim == 1 or self.labels.shape[-1] == size:
            return self.labels
        return F.interpolate(self.labels[:, None], (size, size), mode="nearest-exact")[:, 0]

    def part(self, numbers: Tensor) -> Source:
        """Some of its images, in this order."""
        listed = numbers.tolist()
        return Source(
            self.labels[numbers],
            image=lambda number: self.image(listed[number]),
            pixels=None if self.pixels is None else self.pixels[numbers],
            content=lambda number: self.content(listed[number]),
        )

    def a_fifth_held_out(self) -> tuple[Source, Source]:
        """Two parts, for training and test: the same fifth of each class always."""
        train: list[int] = []
        test: list[int] = []
        for label in self.labels.unique():
            kept, taken = held_out_fifth((self.labels == label).nonzero()[:, 0].tolist())
            train += kept
            test += taken
        return self.part(torch.tensor(sorted(train))), self.part(torch.tensor(sorted(test)))


@dataclass(frozen=True)
class Sources:
    """A dataset that is opened, and of which no image is decoded.

    Attributes:
        train: The whole training split.
        test: The test split.
        classes: The class names in the order of the labels.
        statistics: None where the whole training split, decoded, has to tell (`statistics`).
        chosen: Numbers of the training images that the spec asks for, ascending.
        val: Numbers of the training images that the spec holds out for validation, ascending.
    """

    train: Source
    test: Source
    classes: tuple[str, ...]
    statistics: Statistics | None
    chosen: Tensor
    val: Tensor


@dataclass(frozen=True)
class Split:
    """Decoded images and their labels.

    Attributes:
        images: uint8, N x 3 x S x S, RGB.
        labels: As of a `Source`.
    """

    images: Tensor
    labels: Tensor


@dataclass(frozen=True)
class Data:
    """A dataset decoded for training.

    Attributes:
        train: The training split, or the part of it that the spec asks for.
        held_out: What accuracy is measured on: the whole test split, or the validation part of the training split.
        classes: The class names in the order of the labels.
        mean: Mean of the whole training split per channel, pixels in 0..1.
        std: Standard deviation of the whole training split per channel, pixels in 0..1; never 0.
        checksum: sha256 (hex) over pixels and labels of `train` and `held_out` as they are here.
    """

    train: Split
    held_out: Split
    classes: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    checksum: str

    @property
    def image_size(self) -> int:
        """Side of the images in pixels."""
        return self.train.images.shape[-1]


def decoded(sources: Sources, size: int, on_test: bool) -> Data:
    """Decode all that is trained on and that accuracy is measured on: the test split, or else the validation part."""
    train, test, labels = sources.train, sources.test, sources.train.masks(size)
    if sources.statistics is None:
        whole = train.sized(torch.arange(len(labels)), size)
        mean, std = statistics(levels(whole))
        images = whole if len(sources.chosen) == len(whole) else whole[sources.chosen]
        val = whole[sources.val]
    else:
        mean, std = sources.statistics
        images, val = train.sized(sources.chosen, size), train.sized(sources.val, size)
    held_out = Split(val, labels[sources.val])
    if on_test:
        held_out = Split(test.sized(torch.arange(len(test.labels)), size), test.masks(size))
    split = Split(images, labels[sources.chosen])
    checksum = hashlib.sha256()
    for tensor in (split.images, split.labels, held_out.images, held_out.labels):
        checksum.update(tensor.numpy().data)
    return Data(split, held_out, sources.classes, mean, std, checksum.hexdigest())


def levels(images: Tensor) -> np.ndarray:
    """Count each of the 256 levels in each channel, 3 x 256; counts of parts of the images add up."""
    return np.stack([torch.bincount(images[:, channel].flatten(), minlength=256).numpy() for channel in range(3)])


def statistics(counts: np.ndarray) -> Statistics:
    """Exact, from the count of each of the 256 levels in each channel, 3 x 256."""
    level = np.arange(256) / 255
    mean, std = [], []
    for count in counts:
        share = count / count.sum()
        mean.append(float(share @ level))
        # A channel of one constant value is divided by 1, not by 0.
        std.append(float(np.sqrt(share @ (level - mean[-1]) ** 2)) or 1.0)
    return tuple(mean), tuple(std)
