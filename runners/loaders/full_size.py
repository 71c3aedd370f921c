"""Batches from images on the disk: each is read, decoded, cropped and flipped in a thread when its turn comes near.

Crop, flip and what follows of an image are drawn from streams at (epoch, number of the image), so they do not depend on
the number of threads or processes, or on where a run was resumed. Mixing and erasing are those of every loader.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor
from torchvision.transforms import InterpolationMode
from torchvision.transforms import functional as TF

from vitinit.benchmark.augmentations.operations.timm_draws import put_back
from vitinit.benchmark.augmentations.registry import Augmentation
from vitinit.benchmark.image_files.arrays import Source
from vitinit.benchmark.image_files.full_size import FullSizeData
from vitinit.benchmark.spec import Recipe
from vitinit.initializers.streams import derive
from vitinit.runners.basics.shard import Shard
from vitinit.runners.loaders.base import ALONE, Loader

Change = Callable[[Image.Image], Image.Image]

AHEAD = 1
"""So many batches are decoded while one is trained on."""
CROP_ATTEMPTS = 10
TRAINING_INTERPOLATION = (InterpolationMode.BILINEAR, InterpolationMode.BICUBIC)
"""One of them is drawn for each random resized crop, as timm does by default."""


class FullSizeLoader(Loader):
    """A loader of images that are decoded when they are needed, in as many threads as torch may use."""

    name: ClassVar[str] = "full-size"

    def __init__(
        self, data: FullSizeData, recipe: Recipe, seed: int, device: torch.device, shard: Shard = ALONE
    ) -> None:
        super().__init__(data, recipe, seed, device, shard)
        self.data = data

    def train(self, epoch: int, first_step: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        """This process's part of the batches of one epoch (counted from 0), from one of its steps on."""
        size, order = self.recipe.batch_size, self.order(epoch)
        batches = (order[step * size : (step + 1) * size][self.part] for step in range(first_step, self.steps))
        changes = self._training_changes(epoch)
        yield from self.augmented(self._decoded(self.data.train, batches, changes), epoch, first_step)

    def held_out(self) -> Iterator[tuple[Tensor, Tensor]]:
        """This process's part of the images that accuracy is measured on, in file order."""
        numbers = torch.arange(len(self.data.held_out.labels))[self.held_out_part]
        for images, batch in self._decoded(
            self.data.held_out, iter(numbers.split(self.evaluation_batch)), self._plain_changes
        ):
            yield self.normalise(images), self.data.held_out.labels[batch].to(self.device)

    def plain(self, numbers: Tensor, split: Literal["train", "held_out"] = "train") -> Tensor:
        """These images of the whole split, normalised, without augmentation."""
        images_of = self.data.train if split == "train" else self.data.held_out
        ((images, _),) = self._decoded(images_of, iter([numbers]), self._plain_changes)
        return self.normalise(images)

    def _plain_changes(self, numbers: list[int]) -> list[Change]:
        return [lambda image: central_crop(image, self.data.image_size, self.recipe.crop_pct)] * len(numbers)

    def _training_changes(self, epoch: int) -> Callable[[list[int]], list[Change]]:
        def changes(numbers: list[int]) -> list[Change]:
            seeds = (derive(self.seed, "augment", epoch, number) for number in numbers)
            return [CropAndFlip(self.recipe, self.data.image_size, seed) for seed in seeds]

        return changes

    def crop_and_flip(self, images_BCHW: Tensor, epoch: int, step: int) -> Tensor:
        """Nothing: this was done when they were decoded."""
        return images_BCHW

    def drawn(self, stream: str, augmentation: Augmentation, numbers_B: Tensor, epoch: int, step: int) -> np.ndarray:
        """Draw the changes of an augmentation for these images. Draws are of images."""
        seeds = [derive(self.seed, stream, epoch, number) for number in numbers_B.tolist()]
        with put_back():
            return np.concatenate([augmentation.draw(1, self.data.image_size, seed) for seed in seeds])

    def _decoded(
        self, split: Source, batches: Iterator[Tensor], changes: Callable[[list[int]], list[Change]]
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Batches of uint8 images B x 3 x S x S with their numbers, in order, decoded a little ahead.

        An error in a thread is raised here. However this ends, no thread is left.
        """
        size = self.data.image_size
        under_way: deque[tuple[Tensor, Tensor, list[Future[None]]]] = deque()
        pool = ThreadPoolExecutor(max(1, torch.get_num_threads()), thread_name_prefix="decode")

        def work(number: int, change: Change, into: np.ndarray) -> None:
            into[:] = np.asarray(change(split.image(number))).transpose(2, 0, 1)

        def begin(numbers: Tensor) -> None:
            images = torch.empty((len(numbers), 3, size, size), dtype=torch.uint8, pin_memory=self.pins)
            listed = numbers.tolist()
            jobs = zip(listed, changes(listed), images.numpy(), strict=True)
            under_way.append((images, numbers, [pool.submit(work, *job) for job in jobs]))

        try:
            while True:
                while len(under_way) <= AHEAD and (numbers := next(batches, None)) is not None:
                    begin(numbers)
                if not under_way:
                    return
                images, numbers, futures = under_way.popleft()
                for future in futures:
                    future.result()
                yield images, numbers
        finally:
            pool.shutdown(cancel_futures=True)


@dataclass(frozen=True)
class CropAndFlip:
    """The first part of the augmentation of one training image."""

    recipe: Recipe
    size: int
    seed: int

    def __call__(self, image: Image.Image) -> Image.Image:
        """The image, cropped to `size` x `size`, and mirrored or not."""
        draws = random.Random(self.seed)
        if self.recipe.crop_scale:
            image = random_resized_crop(image, self.size, self.recipe.crop_scale, self.recipe.crop_ratio, draws)
        else:
            image = central_crop(image, self.size, self.recipe.crop_pct)
        return ImageOps.mirror(image) if draws.random() < self.recipe.hflip else image


def central_crop(image: Image.Image, size: int, crop_pct: float) -> Image.Image:
    """The test transform of timm: shorter side to size / crop_pct (bicubic), then the central size x size pixels."""
    return TF.center_crop(TF.resize(image, math.floor(size / crop_pct), InterpolationMode.BICUBIC), size)


def random_resized_crop(
    image: Image.Image, size: int, scale: tuple[float, float], ratio: tuple[float, float], draws: random.Random
) -> Image.Image:
    """A part of the image, of random area and shape, resized to size x size; with the draws that timm makes."""
    top, left, rows, columns = _crop_box(image, scale, ratio, draws)
    return TF.resized_crop(image, top, left, rows, columns, [size, size], draws.choice(TRAINING_INTERPOLATION))


def _crop_box(
    image: Image.Image, scale: tuple[float, float], ratio: tuple[float, float], draws: random.Random
) -> tuple[int, int, int, int]:
    """Top, left, rows and columns; the largest central part of an allowed shape where ten attempts do not fit."""
    width, height = image.size
    for _ in range(CROP_ATTEMPTS):
        area = draws.uniform(*scale) * (width * height)
        shape = math.exp(draws.uniform(math.log(ratio[0]), math.log(ratio[1])))
        columns, rows = round(math.sqrt(area * shape)), round(math.sqrt(area / shape))
        if columns <= width and rows <= height:
            return draws.randint(0, height - rows), draws.randint(0, width - columns), rows, columns
    columns = min(width, round(height * ratio[1]))
    rows = min(height, round(width / ratio[0]))
    return (height - rows) // 2, (width - columns) // 2, rows, columns
