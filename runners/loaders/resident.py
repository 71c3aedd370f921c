"""Batches from images held in memory: order and augmentation come from the run's named streams, no workers."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from benchmark.datasets import Data
from benchmark.spec import Recipe
from runners.augment import augment
from runners.shard import Shard
from runners.streams import stream

EVALUATION_BATCH = 500


class ResidentLoader:
    """Training and test batches of one run: float32 normalised images and int64 labels on the device.

    The last, smaller training batch of an epoch is dropped, as timm does; the test split is always whole. Of several
    processes each gets its part of every batch and of the test split. The batches are those of a process that is
    alone: each process augments the whole batch and keeps its part, as the streams are of batches, not of images.
    """

    def __init__(
        self,
        data: Data,
        recipe: Recipe,
        seed: int,
        device: torch.device,
        shard: Shard = Shard(),  # noqa: B008
    ) -> None:
        self.data, self.recipe, self.seed, self.device, self.shard = data, recipe, seed, device, shard
        self.steps = len(data.train.labels) // recipe.batch_size
        self._mean = torch.tensor(data.mean, device=device)[:, None, None]
        self._std = torch.tensor(data.std, device=device)[:, None, None]

    def normalise(self, images_BCHW: Tensor) -> Tensor:
        """uint8 0..255 to float32 on the device, minus mean, over standard deviation."""
        return (images_BCHW.to(self.device).float() / 255 - self._mean) / self._std

    def train(self, epoch: int, first_step: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        """This process's part of the batches of one epoch (counted from 0), from one of its steps on."""
        split, size = self.data.train, self.recipe.batch_size
        part = self.shard.part(size)
        order = torch.randperm(len(split.labels), generator=stream(self.seed, "order", epoch))
        for step in range(first_step, self.steps):
            index = order[step * size : (step + 1) * size]
            images = augment(split.images[index], self.recipe, self.data.mean, self.seed, epoch, step)
            yield self.normalise(images[part]), split.labels[index[part]].to(self.device)

    def test(self) -> Iterator[tuple[Tensor, Tensor]]:
        """This process's part of the test split in file order."""
        part = self.shard.part(len(self.data.test.labels))
        images, labels = self.data.test.images[part], self.data.test.labels[part]
        for start in range(0, len(labels), EVALUATION_BATCH):
            batch = slice(start, start + EVALUATION_BATCH)
            yield self.normalise(images[batch]), labels[batch].to(self.device)
