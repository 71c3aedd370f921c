"""Base of all loaders: this process's part of a batch, and everything after decoding; and that of images in memory."""

import itertools
import math
import os
import random
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from functools import cached_property, partial
from pathlib import Path
from threading import Barrier
from typing import ClassVar, Literal, TypeVar

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor
from torchvision.transforms import InterpolationMode
from torchvision.transforms import functional as TF

from vitinit.benchmark.augmentations import registry as augmentations
from vitinit.benchmark.augmentations.operations.image_operations import crop, fill_color, replace_, sent
from vitinit.benchmark.datasets import registry as datasets
from vitinit.benchmark.image_files.arrays import Data
from vitinit.benchmark.image_files.beton import MANIFEST, ffcv_missing, load_beton, prepared_folder, threads_kept
from vitinit.benchmark.metrics.registry import main_metric
from vitinit.benchmark.spec import DatasetSpec, Recipe
from vitinit.initializers.errors import VitinitError, plain
from vitinit.initializers.streams import derive, stream
from vitinit.runners.augmentation.mixing import erase, mix, random_sides
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


def in_threads(jobs: Iterator[Callable[[], Result]], threads: int, ahead: int = 0) -> Generator[Result, None, None]:
    """The results of the jobs, in order. However this ends, no thread is left.

    Operations on a batch of small images gain next to nothing from several threads each; batches beside one another,
    on one thread each, do. The jobs themselves are fetched in the thread that takes the results.

    Args:
        jobs: pure functions.
        threads: so many jobs at once; with 1, each is carried out when its result is asked for.
        ahead: so many jobs are begun in the background before their results are asked for, with one thread too; 0: one
            for each thread.
    """
    if threads == 1 and not ahead:
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
        statistics = (data.mean, data.std) if recipe.statistics == "dataset" else datasets.IMAGENET_STATISTICS
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
                    np.concatenate([self.drawn(*augmentation, numbers, epoch, step) for step, _, numbers in taken])
                    for augmentation in self.augmentations
                ]
                yield partial(self._augmented, taken, drawn, epoch)

        with closing(in_threads(jobs(), threads)) as groups:
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
        pixels = sent(images_BCHW, self.device).contiguous().float()
        return torch.addcmul(self._offset_CHW, pixels, self._scale_CHW, out=pixels)

    def order(self, epoch: int) -> Tensor:
        """The order of the training images in one epoch. It is the same for every loader."""
        return torch.randperm(len(self._labels), generator=stream(self.seed, "order", epoch))

    def crop_and_flip(self, images_BCHW: Tensor, epoch: int, step: int) -> Tensor:
        """The first part of augmentation. Draws are of batches: each process draws for the whole of it."""
        recipe, generator = self.recipe, stream(self.seed, "augment", epoch, step)
        if recipe.crop_padding:
            offsets_2B = torch.randint(2 * recipe.crop_padding + 1, (2, recipe.batch_size), generator=generator)
            images_BCHW = crop(images_BCHW, recipe.crop_padding, *sent(offsets_2B[:, self.part], self.device))
        if recipe.hflip:
            flipped_B = torch.rand(recipe.batch_size, generator=generator) < recipe.hflip
            places = sent(flipped_B[self.part].nonzero()[:, 0], self.device)
            flipped_NCHW = images_BCHW.index_select(0, places).flip(-1)
            images_BCHW = images_BCHW.clone(memory_format=torch.contiguous_format)
            replace_(images_BCHW, places, flipped_NCHW)
        return images_BCHW

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
            images = sent(images, self.device).contiguous()
            if self.dense:
                # What moves pixels moves masks, as one more channel. Classes are counted from 1 in it, and IGNORED is
                # 0, as 255 + 1 is in a byte: zeros around an image are ignored.
                images = torch.cat([images, labels[-1][:, None] + 1], dim=1)
            batches.append(self.crop_and_flip(images, epoch, step))
        if drawn:
            images, sizes = torch.cat(batches), [len(images) for images in batches]
            for (_, augmentation), numbers_BN in zip(self.augmentations, drawn, strict=True):
                images = augmentation.apply(images, numbers_BN, self._fill)
            batches = list(images.split(sizes))
        finished = []
        for images, targets, (step, *_) in zip(batches, labels, taken, strict=True):
            if self.dense:
                images, targets = images[:, :-1], images[:, -1] - 1
            if recipe.mixes:
                first = step * recipe.batch_size + self.part.start
                images, targets = mix(images, targets, recipe, self.classes, self.seed, epoch, first)
            images = self.normalise(images)
            if recipe.random_erasing:
                images = erase(images, recipe, self.seed, epoch, step, self.part)
            finished.append((images, targets))
        return finished


class ResidentLoader(Loader):
    """A loader of images that are on the device from the first batch on, as uint8, and are augmented there."""

    name: ClassVar[str] = "resident"

    @cached_property
    def _images(self) -> dict[str, Tensor]:
        return {
            split: getattr(self.data, split).sized(self.image_size).to(self.device) for split in ("train", "held_out")
        }

    def read(self, split: SplitName, batches: Sequence[Tensor], epoch: int | None = None) -> Iterator[Tensor]:
        """Images by their numbers, uint8, B x 3 x S x S, on the device."""
        images = self._images[split]
        return (images.index_select(0, sent(numbers, self.device)) for numbers in batches)


TRAINING_INTERPOLATION = InterpolationMode.BILINEAR, InterpolationMode.BICUBIC
"""One of them is drawn for each random resized crop, as timm does by default."""


class FullSizeLoader(Loader):
    """A loader of images that are decoded when they are needed, in as many threads as torch may use."""

    name: ClassVar[str] = "full-size"

    def read(self, split: SplitName, batches: Sequence[Tensor], epoch: int | None = None) -> Iterator[Tensor]:
        """Images by their numbers, uint8, B x 3 x S x S, decoded a batch ahead; of an epoch, cropped and flipped."""
        images_of, size = getattr(self.data, split), self.image_size

        def decoded(number: int) -> np.ndarray:
            image = images_of.image(number)
            if epoch is None:
                return np.asarray(central_crop(image, size, self.recipe.crop_pct))
            draws = random.Random(derive(self.seed, "augment", epoch, number))
            return np.asarray(crop_and_flip_image(image, size, self.recipe, draws))

        jobs = (partial(decoded, number) for numbers in batches for number in numbers.tolist())
        with closing(in_threads(jobs, torch.get_num_threads(), 2 * max(map(len, batches), default=0))) as images:
            for numbers in batches:
                batch = torch.empty((len(numbers), 3, size, size), dtype=torch.uint8, pin_memory=self.pins)
                for place, image in zip(batch.numpy(), images, strict=False):
                    place[:] = image.transpose(2, 0, 1)
                yield batch

    def crop_and_flip(self, images_BCHW: Tensor, epoch: int, step: int) -> Tensor:
        """Nothing: this was done when they were decoded."""
        return images_BCHW

    def drawn(
        self, stream: str, augmentation: augmentations.Augmentation, numbers_B: Tensor, epoch: int, step: int
    ) -> np.ndarray:
        """Draw the changes of an augmentation for these images. Draws are of images."""
        seeds = [derive(self.seed, stream, epoch, number) for number in numbers_B.tolist()]
        return np.concatenate([augmentation.draw(1, self.image_size, seed) for seed in seeds])


def crop_and_flip_image(image: Image.Image, size: int, recipe: Recipe, draws: random.Random) -> Image.Image:
    """The first part of the augmentation of one training image: size x size of it, mirrored or not.

    A random resized crop is of random area and shape, with the draws that timm makes.
    """
    if recipe.crop_scale:
        (width, height), ratio = image.size, recipe.crop_ratio
        for columns, rows in random_sides(draws, width * height, recipe.crop_scale, ratio):
            if columns <= width and rows <= height:
                top, left = draws.randint(0, height - rows), draws.randint(0, width - columns)
                break
        else:  # the largest central part of an allowed shape
            columns, rows = min(width, round(height * ratio[1])), min(height, round(width / ratio[0]))
            top, left = (height - rows) // 2, (width - columns) // 2
        interpolation = draws.choice(TRAINING_INTERPOLATION)
        image = TF.resized_crop(image, top, left, rows, columns, [size, size], interpolation)
    else:
        image = central_crop(image, size, recipe.crop_pct)
    return ImageOps.mirror(image) if draws.random() < recipe.hflip else image


def central_crop(image: Image.Image, size: int, crop_pct: float) -> Image.Image:
    """The test transform of timm: shorter side to size / crop_pct (bicubic), then the central size x size pixels."""
    return TF.center_crop(TF.resize(image, math.floor(size / crop_pct), InterpolationMode.BICUBIC), size)


RESIDENT_SHARE = 0.25
"""`auto` keeps a dataset in memory when its decoded images take at most this share of the device's memory."""
SHARED = 0.5
"""The images of all runs that share a device take at most this share of it."""


def open_data(
    spec: DatasetSpec,
    image_size: int,
    data_dir: Path,
    loader: str = "auto",
    device: str = "cpu",
    seed: int = 0,
    cropped: bool = False,
    runs: int = 1,
) -> Data:
    """Open a dataset for a loader; of those that are not resident no image is decoded.

    The images of a streamed dataset (ImageNet), or of one that the recipe crops (`cropped`), are decoded in their own
    size in every epoch: by FFCV where they are prepared for it, else from their files. The seed is the run's: it
    matters where the spec redraws the training images.
    Of `runs` that share the device each holds images of its own.

    Raises:
        VitinitError: the dataset cannot be used; or FFCV is to read it, and is not installed, or the dataset is not
            prepared for it; or images that are cropped are to be resident.
    """
    if reason := datasets.unavailable(spec, data_dir):
        raise VitinitError(reason)
    dataset, why = datasets.get(spec.name), ""
    own_size = cropped or dataset.streamed
    if loader == "resident" and own_size:
        raise VitinitError(
            f"{spec.label}: its images are cropped anew in every epoch, so none is resident: --loader auto or ffcv"
        )
    if loader == "auto" and own_size:
        prepared = (prepared_folder(spec, None, data_dir) / MANIFEST).is_file() and not ffcv_missing()
        loader = "ffcv" if prepared else "full-size"
    if loader == "auto":
        size = datasets.decoded_size(spec, image_size, data_dir)
        share = min(RESIDENT_SHARE, SHARED / runs)
        loader = "resident" if size <= share * device_memory(device) else "ffcv"
        why = (
            f"{spec.label} at {image_size} px has {size / 1e9:.1f} GB, more than {share:.0%} of memory, so FFCV has to "
            "read it (--loader resident keeps it in memory): "
        )
    if loader != "ffcv":
        return datasets.load(spec, image_size, data_dir, derive(seed, "train_draw"), cropped)
    try:
        if dataset.dense:
            raise VitinitError(f"{spec.label} has masks, which FFCV does not read; --loader resident does")
        return load_beton(spec, image_size, data_dir, own_size)
    except VitinitError as error:
        raise VitinitError(f"{why}{error}") from None


def device_memory(device: str) -> int:
    """Bytes of memory of a device, at most those of this machine: images are decoded there."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if device.startswith("cuda") and torch.cuda.is_available():
        return min(memory, torch.cuda.get_device_properties(torch.device(device)).total_memory)
    return memory


def make_loader(data: Data, recipe: Recipe, seed: int, device: torch.device, world: World = ALONE) -> Loader:
    """The loader for this kind of data.

    Raises:
        VitinitError: more processes than can share a batch, or FFCV cannot be imported.
    """
    if data.file is None:
        return (FullSizeLoader if data.train.images is None else ResidentLoader)(data, recipe, seed, device, world)
    try:
        with threads_kept():
            from vitinit.runners.loaders.ffcv import FfcvLoader
    except (ImportError, OSError) as error:
        raise VitinitError(f"FFCV is installed but cannot be imported: {plain(str(error), 200)}") from error
    return FfcvLoader(data, recipe, seed, device, world)
