"""Batches of images that are decoded at their final size, wherever they lie; all numbers come from named streams."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Literal

import torch
from torch import Tensor

from benchmark.beton import BetonData
from benchmark.datasets import Data
from benchmark.spec import Recipe
from runners.augment import augment
from runners.loaders.base import ALONE, EVALUATION_BATCH, Loader
from runners.shard import Shard


class DecodedLoader(Loader):
    """What does not depend on where the decoded images lie: nothing that can change a number does.

    Each process augments the whole batch and keeps its part, as the streams of augmentation are of batches here, not of
    images.
    """

    def __init__(
        self, data: Data | BetonData, recipe: Recipe, seed: int, device: torch.device, shard: Shard = ALONE
    ) -> None:
        super().__init__(data, recipe, seed, device, shard)
        self._test_labels = data.test.labels
        self._fill = data.mean

    @abstractmethod
    def read(self, split: Literal["train", "test"], batches: Sequence[Tensor]) -> Iterator[Tensor]:
        """Images by their numbers in a split, uint8, B x 3 x S x S.

        Args:
            split: which.
            batches: numbers B of each; all batches but the last are equally large.
        """

    def train(self, epoch: int, first_step: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        """This process's part of the batches of one epoch (counted from 0), from one of its steps on."""
        size, order = self.recipe.batch_size, self.order(epoch)
        batches = order[first_step * size : self.steps * size].split(size) if first_step < self.steps else ()
        for step, (numbers, images) in enumerate(zip(batches, self.read("train", batches), strict=True), first_step):
            augmented = augment(images, self.recipe, self._fill, self.seed, epoch, step)
            yield self.finish(augmented[self.part], numbers[self.part], epoch, step)

    def test(self) -> Iterator[tuple[Tensor, Tensor]]:
        """This process's part of the test split in file order."""
        numbers = torch.arange(len(self._test_labels))[self.test_part]
        batches = numbers.split(EVALUATION_BATCH) if len(numbers) else ()
        for batch, images in zip(batches, self.read("test", batches), strict=True):
            yield self.normalise(images), self._test_labels[batch].to(self.device)

    def plain(self, numbers: Tensor) -> Tensor:
        """These training images, normalised, without augmentation."""
        (images,) = self.read("train", [numbers])
        return self.normalise(images)
