"""Base of all loaders: this process's part of a batch, and everything after decoding; and that of images in memory."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from functools import cached_property, partial
from threading import Barrier
from typing import ClassVar, Literal, TypeVar

import numpy as np
import torch
from torch import Tensor

from vitinit.benchmark.augmentations import registry as augmentations
from vitinit.benchmark.augmentations.operations.carry_out import fill_color
from vitinit.benchmark.augmentations.operations.image_operations import sent
from vitinit.benchmark.datasets.dataset import IMAGENET_STATISTICS
from vitinit.benchmark.image_files.arrays import Data
from vitinit.benchmark.metrics.registry import main_metric
from vitinit.benchmark.spec import Recipe
from vitinit.initializers.errors import VitinitError
from vitinit.initializers.streams import derive, stream
from vitinit.runners.augmentation.mixing import crop_and_flip, erase, joined, mix, parted
from vitinit.runners.training.distributed import ALONE, World

EVALUATION_BATCH = {"cpu": 500, "cuda": 2000}
"""Images at once, by type of device: a GPU is busy with a large batch only."""
EVALUATION_BYTES = 2**29
"""Upper limit of a batch of float32 images in evaluation, so that large images need no more memory than training."""
AHEAD_BYTES = 2**28
"""Bytes that batches made ahead of their use take at most, about."""
TOGETHER_BYTES = {"cpu": 2**25, "cuda": 2**28}
"""Bytes of batches that are augmented at once, by type of device: threads of a CPU wait less for one another, and a
GPU is given one large operation in place of several small ones."""


SplitName = Literal["train", "held_out"]


Result = TypeVar("Result")


def carried_out(
    jobs: Iterator[Callable[[], Result]], threads: int, ahead: int = 0, beside: bool = False
) -> Generator[Result, None, None]:
    """The results of the jobs, in order. However this ends, no thread is left.

    Operations on a batch of small images gain next to nothing from several threads each; batches beside one another,
    on one thread each, do. The jobs themselves are fetched in the thread that takes the results.

    Args:
        jobs: pure functions.
        threads: so many jobs at once; with 1, each is carried out when its result is asked for.
        ahead: so many jobs are begun before their results are asked for; 0: one for each thread.
        beside: one thread is one of its own too: whoever takes the results has other work.
    """
    if threads == 1 and not beside:
        for job in jobs:
            yield job()
        return
    under_way: deque[Future[Result]] = deque()
    pool, all_here = ThreadPoolExecutor(threads, thread_name_prefix="batch"), Barrier(threads + 1)
    before = torch.get_num_threads()

    def begin() -> None:
        torch.get_num_threads()  # a thread takes the process's number when it first asks, and only then keeps its own
        torch.set_num_threads(1)
        all_here.wait()

    try:
        for _ in range(threads):
            pool.submit(begin)
        all_here.wait()
        torch.set_num_threads(before)
        for job in jobs:
            under_way.append(pool.submit(job))
            if len(under_way) > (ahead or threads):
                yield under_way.popleft().result()
        while under_way:
            yield under_way.popleft().result()
    finally:
        all_here.abort()  # an interrupt while they gather would leave them waiting, and this waiting for them
        pool.shutdown(cancel_futures=True)


class Loader(ABC):
    """Training and test batches of one run: float32 normalised images and their targets, on the device.

    Targets are int64 labels B, or shares of classes, float32, B x classes, where the recipe mixes images. Of a dense
    dataset they are masks, uint8, B x S x S, with the class of each pixel or `IGNORED`.

    The last, smaller training batch of an epoch is dropped, as timm does; of the held-out images, which accuracy is
    measured on, none is. Of several processes each gets its part of every batch and of the held-out images; together
    they get what a process that is alone gets.

    Attributes:
        name: what records call it.
        data: the opened dataset.
        steps: optimiser steps in an epoch.
        image_size: pixels a side.
        device: where the batches are.
        classes: how many there are.
        dense: True where targets are masks.
        metric: the main metric on the held-out images; a run sets it to the one that its dataset names.
        part: this process's part of every batch.
        pins: True where batches wait in page-locked memory, which a GPU reads while the host goes on.
    """

    name: ClassVar[str]

    def __init__(self, data: Data, recipe: Recipe, seed: int, device: torch.device, world: World = ALONE) -> None:
        chunks = recipe.batch_size // recipe.mix_unit
        if world.size > chunks:
            raise VitinitError(
                f"{world.size} processes cannot share batches of {recipe.batch_size} images: 1 to {chunks} can"
            )
        self.data, self.recipe, self.seed = data, recipe, seed
        self.device, self.pins = device, device.type == "cuda"
        self._stream = torch.cuda.Stream(device) if self.pins else None
        self.augmentations = augmentations.of_recipe(recipe)
        self.image_size, self.classes = data.image_size, len(data.classes)
        self.steps = len(data.train.labels) // recipe.batch_size
        most = EVALUATION_BYTES // (4 * 3 * data.image_size**2)
        self.evaluation_batch = max(1, min(EVALUATION_BATCH[device.type], most))
        self.part = world.part(recipe.batch_size, recipe.mix_unit)
        self._held_out = world.part(len(data.held_out.labels))
        self._labels = data.train.labels.to(device)
        self._held_out_labels = data.held_out.labels[self._held_out].to(device)
        self.dense = self._labels.ndim > 1
        self.metric = main_metric(None, self.dense, None)
        if self.dense:
            recipe.check_masks()
        statistics = (data.mean, data.std) if recipe.statistics == "dataset" else IMAGENET_STATISTICS
        self._fill = fill_color(statistics[0]).to(device)
        # of every pixel, because a CPU takes twice as long where one number is that of a whole channel
        mean_CHW, std_CHW = torch.tensor(statistics, dtype=torch.float64)[:, :, None, None].repeat(
            1, 1, data.image_size, data.image_size
        )
        self._scale_CHW = (1 / (255 * std_CHW)).float().to(device)
        self._offset_CHW = (-mean_CHW / std_CHW).float().to(device)

    @abstractmethod
    def read(self, split: SplitName, batches: Sequence[Tensor], epoch: int | None = None) -> Iterator[Tensor]:
        """Images by their numbers, uint8, B x 3 x S x S.

        Args:
            split: the whole of it.
            batches: numbers B of each; all batches but the last are equally large.
            epoch: that they are trained on in; a loader that crops images as it decodes them crops for it. None: plain.
        """

    def train(self, epoch: int, first_step: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        """This process's part of the batches of one epoch (counted from 0), from one of its steps on.

        All of augmentation is on the device: crop, flip, RandAugment, others by name, mix, normalise, erase. On a GPU
        the next batch is made in a stream of its own while the model trains on the present one.
        """
        batches, side = self._batches(epoch, first_step), self._stream
        if side is None:
            yield from batches
            return
        main = torch.cuda.current_stream(self.device)
        side.wait_stream(main)  # it reads what was made there

        def made() -> tuple[tuple[Tensor, Tensor] | None, torch.cuda.Event]:
            with torch.cuda.stream(side):
                return next(batches, None), side.record_event()

        batch, ready = made()
        while batch:
            following = made()  # draws and launches come before those of the step
            main.wait_event(ready)
            for tensor in batch:
                tensor.record_stream(main)  # its memory is not used again before the step has read it
            yield batch
            batch, ready = following

    def _batches(self, epoch: int, first_step: int) -> Iterator[tuple[Tensor, Tensor]]:
        size, steps = self.recipe.batch_size, range(first_step, self.steps)
        order = self.order(epoch)[first_step * size : self.steps * size]
        batches = order.view(-1, size)[:, self.part].unbind()
        numbered = zip(steps, self.read("train", batches, epoch), batches, strict=False)

        together = threads = 1
        if self.augmentations:
            batch_bytes = 4 * size * 3 * self.image_size**2
            if self.device.type == "cpu" and batch_bytes * torch.get_num_threads() <= AHEAD_BYTES:
                threads = torch.get_num_threads()
            # a short epoch keeps all threads busy, two jobs for each
            room = min(TOGETHER_BYTES[self.device.type], AHEAD_BYTES // threads)
            together = max(1, min(room // batch_bytes, len(steps) // (2 * threads)))

        def jobs() -> Iterator[Callable[[], Sequence[tuple[Tensor, Tensor]]]]:
            while taken := list(itertools.islice(numbered, together)):
                # drawn here: it seeds global generators, which only one thread may
                drawn = [
                    np.concatenate([self.drawn(*each, numbers, epoch, step) for step, _, numbers in taken])
                    for each in self.augmentations
                ]
                yield partial(self._augmented, taken, drawn, epoch)

        with closing(carried_out(jobs(), threads)) as groups:
            for group in groups:
                yield from group

    def held_out(self) -> Iterator[tuple[Tensor, Tensor]]:
        """This process's part of the images that accuracy is measured on, in file order."""
        numbers = torch.arange(self._held_out.start, self._held_out.stop)
        batches = numbers.split(self.evaluation_batch)
        labels = self._held_out_labels.split(self.evaluation_batch)
        for images, labels_B in zip(self.read("held_out", batches), labels, strict=False):
            yield self.normalise(images), labels_B

    def plain(self, numbers: Tensor, split: SplitName = "train") -> Tensor:
        """These images of the whole split, normalised, without augmentation."""
        (images,) = self.read(split, [numbers])
        return self.normalise(images)

    def normalise(self, images_BCHW: Tensor) -> Tensor:
        """uint8 0..255 to float32 on the device: share of 255, minus mean, over standard deviation, in one pass."""
        pixels = self._sent(images_BCHW).float()
        return torch.addcmul(self._offset_CHW, pixels, self._scale_CHW, out=pixels)

    def order(self, epoch: int) -> Tensor:
        """The order of the training images in one epoch. It is the same for every loader."""
        return torch.randperm(len(self._labels), generator=stream(self.seed, "order", epoch))

    def crop_and_flip(self, images_BCHW: Tensor, epoch: int, step: int) -> Tensor:
        """The first part of augmentation. Draws are of batches: each process draws for the whole of it."""
        return crop_and_flip(images_BCHW, self.recipe, stream(self.seed, "augment", epoch, step), self.part)

    def drawn(
        self, stream: str, augmentation: augmentations.Augmentation, numbers_B: Tensor, epoch: int, step: int
    ) -> np.ndarray:
        """Draw the changes of an augmentation for these images. Each process draws for the whole batch."""
        seed = derive(self.seed, stream, epoch, step)
        return augmentation.draw(self.recipe.batch_size, self.image_size, seed)[self.part]

    def _augmented(
        self, taken: Sequence[tuple[int, Tensor, Tensor]], drawn: Sequence[np.ndarray], epoch: int
    ) -> list[tuple[Tensor, Tensor]]:
        """Some batches of an epoch, augmented. No image depends on how many are augmented at once.

        Args:
            taken: step, images and their numbers, of each batch.
            drawn: what is drawn of each augmentation by name, for all images.
            epoch: counted from 0.
        """
        recipe, labels, batches = self.recipe, [], []
        for step, images, numbers in taken:
            labels.append(self._labels.index_select(0, sent(numbers, self.device)))
            images = self._sent(images)
            # what moves pixels moves masks, as one more channel
            images = joined(images, labels[-1]) if self.dense else images
            batches.append(self.crop_and_flip(images, epoch, step))
        if drawn:
            images, sizes = torch.cat(batches), [len(images) for images in batches]
            for (_, augmentation), numbers_BN in zip(self.augmentations, drawn, strict=True):
                images = augmentation.apply(images, numbers_BN, self._fill)
            batches = list(images.split(sizes))
        finished = []
        for images, targets, (step, *_) in zip(batches, labels, taken, strict=True):
            if self.dense:
                images, targets = parted(images)
            if recipe.mixes:
                first = step * recipe.batch_size + self.part.start
                images, targets = mix(images, targets, recipe, self.classes, self.seed, epoch, first)
            images = self.normalise(images)
            if recipe.random_erasing:
                images = erase(images, recipe, self.seed, epoch, step, self.part)
            finished.append((images, targets))
        return finished

    def _sent(self, images_BCHW: Tensor) -> Tensor:
        return sent(images_BCHW, self.device).contiguous()


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
