"""Base of all loaders: this process's shard of a batch, and everything after decoding."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from vitinit.benchmark.augmentations import registry as augmentations
from vitinit.benchmark.augmentations.operations.carry_out import fill_color
from vitinit.benchmark.datasets.imagenet import IMAGENET
from vitinit.benchmark.image_files.arrays import Data
from vitinit.benchmark.image_files.beton import BetonData
from vitinit.benchmark.image_files.full_size import FullSizeData
from vitinit.benchmark.metrics.registry import main_metric
from vitinit.benchmark.spec import Recipe
from vitinit.initializers.errors import VitinitError
from vitinit.initializers.streams import derive, stream
from vitinit.runners.augmentation.crop_and_flip import crop_and_flip, joined, parted
from vitinit.runners.augmentation.mixing import Erasing, draw_erasing, erase, mix
from vitinit.runners.basics.shard import Shard
from vitinit.runners.loaders.ahead import carried_out

EVALUATION_BATCH = {"cpu": 500, "cuda": 2000}
"""Images at once, by type of device: a GPU is busy with a large batch only."""
EVALUATION_BYTES = 2**29
"""Upper limit of a batch of float32 images in evaluation, so that large images need no more memory than training."""
AHEAD_BYTES = 2**28
"""Batches are made beside one another, ahead of their use, where they take about so much memory at most."""
TOGETHER_BYTES = {"cpu": 2**25, "cuda": 2**28}
"""So many bytes of batches are augmented at once, by type of device: threads of a CPU wait less for one another, and a
GPU is given one large operation in place of several small ones."""
ALONE = Shard()


def evaluation_batch(device: str, image_size: int) -> int:
    """Return the evaluation batch size for images of so many pixels a side."""
    return max(1, min(EVALUATION_BATCH[device], EVALUATION_BYTES // (4 * 3 * image_size**2)))


class Loader(ABC):
    """Training and test batches of one run: float32 normalised images and their targets, on the device.

    Targets are int64 labels B, or shares of classes, float32, B x classes, where the recipe mixes images. Of a dense
    dataset they are masks, uint8, B x S x S, with the class of each pixel or `IGNORED`.

    The last, smaller training batch of an epoch is dropped, as timm does; of the held-out images, which accuracy is
    measured on, none is. Of several processes each gets its part of every batch and of the held-out images; together
    they get what a process that is alone gets.

    Attributes:
        name: what records call it.
        steps: optimiser steps in an epoch.
        image_size: pixels a side.
        device: where the batches are.
        classes: how many there are.
        metric: what is measured on the held-out images.
    """

    name: ClassVar[str]

    def __init__(
        self,
        data: Data | FullSizeData | BetonData,
        recipe: Recipe,
        seed: int,
        device: torch.device,
        shard: Shard = ALONE,
    ) -> None:
        chunks = recipe.batch_size // recipe.mix_unit
        if shard.size > chunks:
            mixed = f", of which {recipe.mix_unit} are mixed with one another" if recipe.mixes else ""
            raise VitinitError(
                f"{shard.size} processes cannot share batches of {recipe.batch_size} images{mixed}: 1 to {chunks} can"
            )
        self.recipe, self.seed, self.device = recipe, seed, device
        self.pins = device.type == "cuda"
        """True where batches wait in page-locked memory, which a GPU reads while the host goes on."""
        self.augmentations = augmentations.of_recipe(recipe)
        self.steps = len(data.train.labels) // recipe.batch_size
        self.evaluation_batch = evaluation_batch(device.type, data.image_size)
        self.part = shard.part(recipe.batch_size, recipe.mix_unit)
        """This process's part of every batch."""
        self.held_out_part = shard.part(len(data.held_out.labels))
        """This process's part of the images that accuracy is measured on."""
        self.image_size = data.image_size
        self._labels, self.classes = data.train.labels.to(device), len(data.classes)
        self.metric = main_metric(None, self.dense, None)
        """The main metric; a run sets it to the one that its dataset names."""
        if self.dense:
            recipe.check_masks()
        mean, std = (data.mean, data.std) if recipe.statistics == "dataset" else IMAGENET.statistics
        self._fill = fill_color(mean).to(device)
        # of every pixel, because a CPU takes twice as long where one number is that of a whole channel
        mean_CHW, std_CHW = (
            torch.tensor(numbers, dtype=torch.float64)[:, None, None].repeat(1, data.image_size, data.image_size)
            for numbers in (mean, std)
        )
        self._scale_CHW = (1 / (255 * std_CHW)).float().to(device)
        self._offset_CHW = (-mean_CHW / std_CHW).float().to(device)

    @property
    def dense(self) -> bool:
        """True where targets are masks."""
        return self._labels.ndim > 1

    @abstractmethod
    def train(self, epoch: int, first_step: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        """This process's part of the batches of one epoch (counted from 0), from one of its steps on."""

    @abstractmethod
    def held_out(self) -> Iterator[tuple[Tensor, Tensor]]:
        """This process's part of the images that accuracy is measured on, in file order."""

    @abstractmethod
    def plain(self, numbers: Tensor, split: Literal["train", "held_out"] = "train") -> Tensor:
        """These images of the whole split, normalised, without augmentation."""

    def normalise(self, images_BCHW: Tensor) -> Tensor:
        """uint8 0..255 to float32 on the device: share of 255, minus mean, over standard deviation, in one pass."""
        pixels = self._sent(images_BCHW).float()
        return torch.addcmul(self._offset_CHW, pixels, self._scale_CHW, out=pixels)

    def order(self, epoch: int) -> Tensor:
        """The order of the training images in one epoch. It is the same for every loader."""
        return torch.randperm(len(self._labels), generator=stream(self.seed, "order", epoch))

    def augmented(
        self, batches: Iterator[tuple[Tensor, Tensor]], epoch: int, first_step: int
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """All of augmentation, on the device: crop, flip, RandAugment, others by name, mix, normalise, erase.

        Args:
            batches: this process's part of each: images, uint8, B x 3 x S x S, and which training images they are.
            epoch: counted from 0.
            first_step: of the epoch, that of the first batch.
        """

        numbered, batch_bytes = enumerate(batches, first_step), 4 * self.recipe.batch_size * 3 * self.image_size**2
        on_cpu, most = self.device.type == "cpu", TOGETHER_BYTES[self.device.type]
        threads = torch.get_num_threads() if on_cpu and self.augmentations else 1
        room = (min(most, AHEAD_BYTES // (threads + 1)) if on_cpu else most) // batch_bytes
        # a short epoch keeps all threads busy, two jobs for each
        together = max(1, min(room, (self.steps - first_step) // (2 * threads))) if self.augmentations else 1

        erasing = partial(self._erasing, epoch)
        drawn_ahead = carried_out((partial(erasing, step) for step in range(first_step, self.steps)), 1, beside=True)

        def jobs() -> Iterator[Callable[[], Iterable[tuple[Tensor, Tensor]]]]:
            while taken := list(itertools.islice(numbered, together)):
                # drawn here: it seeds global generators, which only one thread may
                drawn = [
                    np.concatenate([self.drawn(*each, numbers, epoch, step) for step, (_, numbers) in taken])
                    for each in self.augmentations
                ]
                changed = partial(self._changed, taken, drawn, epoch)
                yield partial(list, changed(erasing)) if on_cpu else partial(changed, lambda _: next(drawn_ahead))

        ahead = threads if batch_bytes * threads <= AHEAD_BYTES else 1
        with closing(drawn_ahead), closing(carried_out(jobs(), ahead)) as groups:
            for group in groups:
                yield from group

    def _changed(
        self,
        taken: Sequence[tuple[int, tuple[Tensor, Tensor]]],
        drawn: Sequence[np.ndarray],
        epoch: int,
        erasing: Callable[[int], Erasing],
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Batches of an epoch, augmented. No image depends on how many are augmented at once."""
        batches = [self.crop_and_flip(self._moved(*batch), epoch, step) for step, batch in taken]
        if drawn:
            sizes = [len(images) for images in batches]
            images_BCHW = torch.cat(batches)
            for (_, augmentation), numbers_BN in zip(self.augmentations, drawn, strict=True):
                images_BCHW = augmentation.apply(images_BCHW, numbers_BN, self._fill)
            batches = list(images_BCHW.split(sizes))
        for images, (step, (_, numbers)) in zip(batches, taken, strict=True):
            yield self._finish(images, numbers, epoch, step, erasing)

    def _moved(self, images_BCHW: Tensor, numbers_B: Tensor) -> Tensor:
        """All whose pixels crop and flip move: images, and masks as one more channel."""
        images = self._sent(images_BCHW)
        return joined(images, self._targets(numbers_B)) if self.dense else images

    def _sent(self, images_BCHW: Tensor) -> Tensor:
        return images_BCHW.to(self.device, non_blocking=True).contiguous()

    def _targets(self, numbers_B: Tensor) -> Tensor:
        return self._labels.index_select(0, numbers_B.to(self.device, non_blocking=True))

    def _erasing(self, epoch: int, step: int) -> Erasing:
        shape = 3, self.image_size, self.image_size
        drawn = draw_erasing(self.recipe, shape, self.seed, epoch, step, self.part)
        return replace(drawn, noise=drawn.noise.pin_memory()) if self.pins else drawn

    def _finish(
        self, images_BCHW: Tensor, numbers_B: Tensor, epoch: int, step: int, erasing: Callable[[int], Erasing]
    ) -> tuple[Tensor, Tensor]:
        recipe, first = self.recipe, step * self.recipe.batch_size + self.part.start
        images, targets = parted(images_BCHW) if self.dense else (images_BCHW, self._targets(numbers_B))
        if recipe.mixes:
            images, targets = mix(images, targets, recipe, self.classes, self.seed, epoch, first)
        images = self.normalise(images)
        if recipe.random_erasing:
            images = erase(images, erasing(step))
        return images, targets

    def crop_and_flip(self, images_BCHW: Tensor, epoch: int, step: int) -> Tensor:
        """The first part of augmentation. Draws are of batches: each process draws for the whole of it."""
        if not (self.recipe.crop_padding or self.recipe.hflip):
            return images_BCHW
        return crop_and_flip(images_BCHW, self.recipe, stream(self.seed, "augment", epoch, step), self.part)

    def drawn(
        self, stream: str, augmentation: augmentations.Augmentation, numbers_B: Tensor, epoch: int, step: int
    ) -> np.ndarray:
        """Draw the changes of an augmentation for these images. Each process draws for the whole batch."""
        seed = derive(self.seed, stream, epoch, step)
        return augmentation.draw(self.recipe.batch_size, self.image_size, seed)[self.part]
