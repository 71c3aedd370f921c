"""Images in memory, as uint8 tensors: how those of any dataset are decoded, brought to their size and counted."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from vitinit.benchmark.image_files.images import no_bombs

IGNORED = 255
"""In a mask: a pixel that counts neither in training nor in what is measured."""

Statistics = tuple[tuple[float, ...], tuple[float, ...]]
"""Mean and standard deviation of each channel, pixels in 0..1."""


@dataclass(frozen=True)
class Split:
    """Images and their labels.

    Attributes:
        images: uint8, N x 3 x S x S, RGB.
        labels: int64, N, an index into `Data.classes`. Of a dense dataset masks, uint8, N x S x S: such, or `IGNORED`.
    """

    images: torch.Tensor
    labels: torch.Tensor


@dataclass(frozen=True)
class Data:
    """A dataset ready for training.

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


@dataclass(frozen=True)
class Source:
    """A split whose images have not been brought to their size yet.

    Attributes:
        labels: As of a `Split`.
        images: Makes some of its images, by number: uint8, RGB, 3 x S x S each. Safe to call from several threads,
            within `no_bombs`.
    """

    labels: torch.Tensor
    images: Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Sources:
    """A dataset that is not decoded yet.

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
    chosen: torch.Tensor
    val: torch.Tensor


def decoded(sources: Sources, on_test: bool) -> Data:
    """All that is trained on and that accuracy is measured on: the test split, or else the validation part."""
    with no_bombs():
        if sources.statistics is None:
            images = sources.train.images(torch.arange(len(sources.train.labels)))
            mean, std = statistics(levels(images))
            held_out = Split(images[sources.val], sources.train.labels[sources.val])
            images = images if len(sources.chosen) == len(images) else images[sources.chosen]
        else:
            mean, std = sources.statistics
            held_out = Split(sources.train.images(sources.val), sources.train.labels[sources.val])
            images = sources.train.images(sources.chosen)
        train = Split(images, sources.train.labels[sources.chosen])
        if on_test:
            held_out = Split(sources.test.images(torch.arange(len(sources.test.labels))), sources.test.labels)
    checksum = hashlib.sha256()
    for tensor in (train.images, train.labels, held_out.images, held_out.labels):
        checksum.update(tensor.numpy().data)
    return Data(train, held_out, sources.classes, mean, std, checksum.hexdigest())


def in_memory(images: torch.Tensor, labels: torch.Tensor, image_size: int) -> Source:
    """A split of images that are there already: uint8, N x 3 x S x S, of any side S. Masks take the nearest pixel's."""
    if labels.ndim > 1 and labels.shape[-1] != image_size:
        side = (image_size, image_size)
        labels = torch.nn.functional.interpolate(labels[:, None], side, mode="nearest-exact")[:, 0]

    def sized(numbers: torch.Tensor) -> torch.Tensor:
        chosen = images[numbers]
        if chosen.shape[-1] != image_size:
            side = (image_size, image_size)
            chosen = torch.nn.functional.interpolate(chosen, side, mode="bilinear", antialias=True)
        return chosen.contiguous()

    return Source(labels, sized)


def levels(images: torch.Tensor) -> np.ndarray:
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
