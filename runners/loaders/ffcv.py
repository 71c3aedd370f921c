"""Batches that FFCV reads from a .beton.

Of decoded images it reads only: order and augmentation are those of every other loader. JPEGs it decodes, crops and
resizes, too; the crop of an image is drawn from (seed, epoch, its number), so it does not depend on threads, processes
or on where a run was resumed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from queue import Empty
from typing import Any, ClassVar

import numpy as np
import torch
from ffcv.fields.rgb_image import CenterCropRGBImageDecoder, RandomResizedCropRGBImageDecoder, SimpleRGBImageDecoder
from ffcv.loader import Loader as Ffcv
from ffcv.loader import OrderOption
from ffcv.loader.epoch_iterator import EpochIterator
from ffcv.pipeline.compiler import Compiler
from ffcv.pipeline.operation import Operation
from torch import Tensor

from vitinit.benchmark.image_files.beton import damaged, threads_kept
from vitinit.initializers.errors import VitinitError, plain
from vitinit.initializers.streams import derive
from vitinit.runners.loaders.base import Loader, SplitName


class FfcvLoader(Loader):
    """A loader of images that were written into one file (`vitinit data prepare`) and are read with FFCV.

    One thread reads a few batches ahead; JPEGs are decoded in as many as torch may use. FFCV compiles
    itself when it is imported and when it reads for the first time in a process, which takes about ten seconds.
    """

    name: ClassVar[str] = "ffcv"

    def read(self, split: SplitName, batches: Sequence[Tensor], epoch: int | None = None) -> Iterator[Tensor]:
        """Images by their numbers, uint8, B x 3 x S x S, in main memory; for a GPU the channels are last there.

        Raises:
            VitinitError: FFCV does not take the file, or fails as it reads.
        """
        if not batches:
            return
        data, recipe, file = self.data, self.recipe, self.data.file
        assert file
        first = 0 if split == "train" else len(data.train.labels)
        numbers = (torch.cat(list(batches)) + first).numpy().astype(np.uint64)
        size = self.image_size, self.image_size
        decoder: tuple[Any, ...] = (SimpleRGBImageDecoder,)
        if data.jpegs and recipe.crop_scale and epoch is not None:
            decoder = SeededCrop, size, recipe.crop_scale, recipe.crop_ratio
            seeds = [derive(self.seed, "augment", epoch, number) % 2**32 for number in numbers.tolist()]
            numbers |= np.array(seeds, np.uint64) << np.uint64(32)
        elif data.jpegs:
            decoder = CenterCropRGBImageDecoder, size, recipe.crop_pct
        # The file is mapped into memory: one that is cut short while it is read ends the process, and its launcher
        # records that.
        try:
            ffcv = opened(file, *decoder)
        except Exception as error:  # of many types
            raise damaged(file, f"FFCV says {plain(str(error), 200)}") from error
        ffcv.batch_size = len(batches[0])
        reading = None
        try:
            with threads_kept():
                reading = Reading(ffcv, numbers, self.pins)
                images_BCHW = reading.next()  # by now its thread has set the numbers of threads
            yield images_BCHW
            for _ in batches[1:]:
                yield reading.next()
        finally:
            if reading:
                reading.end()


class SeededCrop(RandomResizedCropRGBImageDecoder):
    """FFCV's random resized crop, drawn from a seed: the upper 32 bits of an image's number."""

    def generate_code(self) -> Callable[..., np.ndarray]:
        """FFCV's own code, for one image at a time."""
        code, images = super().generate_code(), Compiler.get_iterator()
        code.is_parallel = False  # only the loop over images is: not all of numba's threading layers nest
        each = Compiler.compile(code)

        def decode(numbers: np.ndarray, memory: Any, metadata: np.ndarray, storage: Any) -> np.ndarray:
            pixels, scratch = memory
            for i in images(len(numbers)):
                np.random.seed(numbers[i] >> np.uint64(32))  # noqa: NPY002 (numba's, of this thread)
                place = numbers[i : i + 1] & np.uint64(0xFFFFFFFF)
                each(place, (pixels[i : i + 1], scratch[i : i + 1]), metadata, storage)
            return pixels[: len(numbers)]

        decode.is_parallel = True  # type: ignore[attr-defined]
        return decode


@lru_cache(maxsize=4)
def opened(file: Path, decoder: type[Operation], *parameters: Any) -> Ffcv:
    """FFCV's loader of a file, for all runs of this process: it compiles itself, which takes more than a second."""
    import numba

    with threads_kept():
        return Ffcv(
            str(file),
            batch_size=1,  # set anew for every iteration
            # numba takes no more threads than it began with
            num_workers=1
            if decoder is SimpleRGBImageDecoder
            else min(torch.get_num_threads(), numba.get_num_threads()),
            os_cache=True,
            order=OrderOption.SEQUENTIAL,
            seed=0,  # else it draws one from numpy's global generator
            pipelines={"image": [decoder(*parameters)]},
            drop_last=False,
        )


class Reading(EpochIterator):
    """FFCV's thread that reads batches ahead; what it raises ends the waiting for it.

    Args:
        ffcv: with the size of the batches.
        numbers: uint64, of the images in the file, in order.
        pins: batches are to lie in page-locked memory.
    """

    def __init__(self, ffcv: Ffcv, numbers: np.ndarray, pins: bool) -> None:
        self.pins = pins
        self.failure: BaseException | None = None
        super().__init__(ffcv, numbers)

    def run(self) -> None:
        """Target of the thread."""
        try:
            super().run()
        except BaseException as error:
            self.failure = error

    def run_pipeline(self, b_ix: int, batch_indices: np.ndarray, batch_slot: int, cuda_event: Any) -> Tensor:
        """One batch, uint8, B x S x S x 3, in the thread. Unless it is for a GPU, FFCV writes into it again."""
        if self.terminate_event.is_set():
            raise StopIteration  # as FFCV itself ends its thread
        images_BHWC: np.ndarray
        (images_BHWC,) = super().run_pipeline(b_ix, batch_indices, batch_slot, cuda_event)
        images = torch.from_numpy(images_BHWC)
        # not `pin_memory`: where there is a GPU FFCV's own memory is page-locked, and torch would not copy it
        return torch.empty_like(images, pin_memory=True).copy_(images) if self.pins else images

    def next(self) -> Tensor:
        """The next batch, uint8, B x 3 x S x S; there must be one."""
        while True:
            try:
                _, images_BHWC = self.output_queue.get(timeout=0.2)
            except Empty:
                if self.failure:
                    why = f"{type(self.failure).__name__}: {plain(str(self.failure), 200)}"
                    raise VitinitError(f"FFCV failed on {self.loader.fname}: {why}") from self.failure
            else:
                images_BCHW = images_BHWC.permute(0, 3, 1, 2)
                # a GPU transposes faster; else a copy, because FFCV writes into the same memory again
                return images_BCHW if self.pins else images_BCHW.clone(memory_format=torch.contiguous_format)

    def end(self) -> None:
        """Lets the thread end, and its memory go; one that hangs for a second is left behind."""
        self.terminate_event.set()
        for _ in range(100):
            if self.is_alive():
                with suppress(Empty):
                    self.output_queue.get(timeout=0.01)
        self.close()
