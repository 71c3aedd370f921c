"""Batches from images held in the device's memory, no workers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar, Literal

import torch
from torch import Tensor

from vitinit.benchmark.image_files.arrays import Data
from vitinit.benchmark.spec import Recipe
from vitinit.runners.loaders.base import ALONE, Loader, Shard


class ResidentLoader(Loader):
    """A loader of images that are on the device from the beginning, as uint8, and are augmented there."""

    name: ClassVar[str] = "resident"

    def __init__(self, data: Data, recipe: Recipe, seed: int, device: torch.device, shard: Shard = ALONE) -> None:
        super().__init__(data, recipe, seed, device, shard)
        self.numbers_on = device
        self._images = {name: getattr(data, name).sized(data.image_size).to(device) for name in ("train", "held_out")}

    def read(
        self, split: Literal["train", "held_out"], batches: Sequence[Tensor], epoch: int | None = None
    ) -> Iterator[Tensor]:
        """Images by their numbers, uint8, B x 3 x S x S, on the device."""
        return (self._images[split].index_select(0, numbers) for numbers in batches)
