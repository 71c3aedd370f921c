"""Batches of images that are decoded at their final size, wherever they lie."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Literal

import torch
from torch import Tensor

from vitinit.benchmark.image_files.arrays import Data
from vitinit.benchmark.image_files.beton import BetonData
from vitinit.benchmark.spec import Recipe
from vitinit.runners.basics.shard import Shard
from vitinit.runners.loaders.base import ALONE, Loader


class DecodedLoader(Loader):
    """Loader of decoded images, wherever they lie: in memory, on the device or on disk, with the same numbers.

    Attributes:
        numbers_on: the device on which `read` takes the numbers of images.
    """

    def __init__(
        self, data: Data | BetonData, recipe: Recipe, seed: int, device: torch.device, shard: Shard = ALONE
    ) -> None:
        super().__init__(data, recipe, seed, device, shard)
        self.numbers_on = torch.device("cpu")
        self._held_out_labels = data.held_out.labels[self.held_out_part].to(device)

    @abstractmethod
    def read(self, split: Literal["train", "held_out"], batches: Sequence[Tensor]) -> Iterator[Tensor]:
        """Images by their numbers, uint8, B x 3 x S x S.

        Args:
            split: the whole of it.
            batches: numbers B of each, on `numbers_on`; all batches but the last are equally large.
        """

    def train(self, epoch: int, first_step: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        """This process's part of the batches of one epoch (counted from 0), from one of its steps on."""
        size = self.recipe.batch_size
        order = self.order(epoch)[first_step * size : self.steps * size].to(self.numbers_on, non_blocking=True)
        batches = order.view(-1, size)[:, self.part].unbind()
        yield from self.augmented(zip(self.read("train", batches), batches, strict=True), epoch, first_step)

    def held_out(self) -> Iterator[tuple[Tensor, Tensor]]:
        """This process's part of the images that accuracy is measured on, in file order."""
        if not len(self._held_out_labels):
            return
        numbers = torch.arange(self.held_out_part.start, self.held_out_part.stop, device=self.numbers_on)
        batches = numbers.split(self.evaluation_batch)
        labels = self._held_out_labels.split(self.evaluation_batch)
        for images, labels_B in zip(self.read("held_out", batches), labels, strict=True):
            yield self.normalise(images), labels_B

    def plain(self, numbers: Tensor, split: Literal["train", "held_out"] = "train") -> Tensor:
        """These images of the whole split, normalised, without augmentation."""
        (images,) = self.read(split, [numbers.to(self.numbers_on)])
        return self.normalise(images)
