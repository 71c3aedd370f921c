"""Batches from images held in memory: order and augmentation come from the run's named streams, no workers."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from benchmark.datasets import Data
from benchmark.spec import Recipe
from runners.augment import augment
from runners.loaders.base import ALONE, EVALUATION_BATCH, Loader
from runners.shard import Shard


class ResidentLoader(Loader):
    """A loader of images in memory.

    Each process augments the whole batch and keeps its part, as the streams of augmentation are of batches here, not of
    images.
    """

    def __init__(self, data: Data, recipe: Recipe, seed: int, device: torch.device, shard: Shard = ALONE) -> None:
        super().__init__(data, recipe, seed, device, shard)
        self.data = data

    def train(self, epoch: int, first_step: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        """This process's part of the batches of one epoch (counted from 0), from one of its steps on."""
        split, size, order = self.data.train, self.recipe.batch_size, self.order(epoch)
        for step in range(first_step, self.steps):
            index = order[step * size : (step + 1) * size]
            images = augment(split.images[index], self.recipe, self.data.mean, self.seed, epoch, step)
            yield self.finish(images[self.part], index[self.part], epoch, step)

    def test(self) -> Iterator[tuple[Tensor, Tensor]]:
        """This process's part of the test split in file order."""
        images, labels = self.data.test.images[self.test_part], self.data.test.labels[self.test_part]
        for start in range(0, len(labels), EVALUATION_BATCH):
            batch = slice(start, start + EVALUATION_BATCH)
            yield self.normalise(images[batch]), labels[batch].to(self.device)

    def plain(self, numbers: Tensor) -> Tensor:
        """These training images, normalised, without augmentation."""
        return self.normalise(self.data.train.images[numbers])
