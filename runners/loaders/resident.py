"""Batches from images held in the device's memory, no workers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import ClassVar

from torch import Tensor

from vitinit.benchmark.augmentations.operations.image_operations import sent
from vitinit.runners.loaders.base import Loader, SplitName


class ResidentLoader(Loader):
    """A loader of images that are on the device from the first batch on, as uint8, and are augmented there."""

    name: ClassVar[str] = "resident"

    @cached_property
    def _images(self) -> dict[str, Tensor]:
        splits = {"train": self.data.train, "held_out": self.data.held_out}
        return {name: split.sized(self.image_size).to(self.device) for name, split in splits.items()}

    def read(self, split: SplitName, batches: Sequence[Tensor], epoch: int | None = None) -> Iterator[Tensor]:
        """Images by their numbers, uint8, B x 3 x S x S, on the device."""
        images = self._images[split]
        return (images.index_select(0, sent(numbers, self.device)) for numbers in batches)
