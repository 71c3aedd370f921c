"""Batches from images held in the device's memory: order and augmentation come from the run's named streams."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from benchmark.datasets import Data
from benchmark.spec import Recipe
from runners.loaders.base import ALONE, EVALUATION_BATCH, Loader
from runners.shard import Shard


class ResidentLoader(Loader):
    """A loader of images that are on the device from the beginning, as uint8, and are augmented there."""

    def __init__(self, data: Data, recipe: Recipe, seed: int, device: torch.device, shard: Shard = ALONE) -> None:
        super().__init__(data, recipe, seed, device, shard)
        self._images = data.train.images.to(device)
        self._test_images, self._test_labels = (
            tensor[self.test_part].to(device) for tensor in (data.test.images, data.test.labels)
        )

    def train(self, epoch: int, first_step: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        """This process's part of the batches of one epoch (counted from 0), from one of its steps on."""
        size, order = self.recipe.batch_size, self.order(epoch).to(self.device)
        for step in range(first_step, self.steps):
            numbers = order[step * size : (step + 1) * size][self.part]
            yield self.finish(self._images.index_select(0, numbers), numbers, epoch, step)

    def test(self) -> Iterator[tuple[Tensor, Tensor]]:
        """This process's part of the test split in file order."""
        batches = zip(self._test_images.split(EVALUATION_BATCH), self._test_labels.split(EVALUATION_BATCH), strict=True)
        for images, labels in batches:
            yield self.normalise(images), labels

    def plain(self, numbers: Tensor) -> Tensor:
        """These training images, normalised, without augmentation."""
        return self.normalise(self._images.index_select(0, numbers.to(self.device)))
