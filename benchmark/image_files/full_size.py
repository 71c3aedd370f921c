"""A dataset whose images are decoded in their own size whenever they are used: what is cropped anew in each epoch."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
import torch

from vitinit.benchmark.image_files.arrays import CHUNK, Source, Sources, levels, statistics


@dataclass(frozen=True)
class FullSizeData:
    """A dataset that is opened, and whose images are decoded when they are used. Else as `arrays.Data`.

    Attributes:
        checksum: sha256 (hex) over `Source.content` and labels of `train` and `held_out`.
        image_size: Side of the images that the loader makes, in pixels.
    """

    train: Source
    held_out: Source
    classes: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    checksum: str
    image_size: int


def full_size(sources: Sources, size: int, on_test: bool) -> FullSizeData:
    """The part of a dataset that its spec asks for, with the statistics of where it is decoded beforehand.

    Where these are not known, all images are decoded once: one that is damaged stops a run at its start.
    """
    if sources.statistics is None:
        counts = {"train": np.zeros((3, 256), np.int64), "test": np.zeros((3, 256), np.int64)}
        for name, split in (("train", sources.train), ("test", sources.test)):
            for numbers in torch.arange(len(split.labels)).split(CHUNK):
                counts[name] += levels(split.sized(numbers, size))
        mean, std = statistics(counts["train"])
    else:
        mean, std = sources.statistics
    train, held_out = sources.train.part(sources.chosen), sources.test
    if not on_test:
        held_out = sources.train.part(sources.val)
    checksum = hashlib.sha256()
    for split in (train, held_out):
        for number in range(len(split.labels)):
            checksum.update(split.content(number))
        checksum.update(split.labels.numpy().data)
    return FullSizeData(train, held_out, sources.classes, mean, std, checksum.hexdigest(), size)
