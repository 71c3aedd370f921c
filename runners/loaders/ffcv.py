"""Batches that FFCV reads from a .beton. It reads only: order and augmentation are those of every other loader."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from queue import Empty
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from ffcv.fields.rgb_image import SimpleRGBImageDecoder
from ffcv.loader import Loader as Ffcv
from ffcv.loader import OrderOption
from ffcv.loader.epoch_iterator import EpochIterator
from torch import Tensor

from vitinit.benchmark.image_files.beton import BetonData, damaged, threads_kept
from vitinit.benchmark.spec import Recipe
from vitinit.initializers.errors import VitinitError, plain
from vitinit.runners.loaders.base import ALONE, Loader, Shard

SILENT_S = 300.0
"""After so many seconds without a batch, a run fails: FFCV itself would wait for ever."""
POLL_S = 0.2


class FfcvLoader(Loader):
    """A loader of images that were decoded once and for all (`vitinit data prepare`) and are read with FFCV.

    One thread reads a few batches ahead: to copy pixels is all it has to do. FFCV compiles itself when it is imported
    and when it reads for the first time in a process, which takes about ten seconds.
    """

    name: ClassVar[str] = "ffcv"

    def __init__(self, data: BetonData, recipe: Recipe, seed: int, device: torch.device, shard: Shard = ALONE) -> None:
        """See `Loader`.

        Raises:
            VitinitError: FFCV does not take the file, or more processes than can share a batch.
        """
        super().__init__(data, recipe, seed, device, shard)
        self._data = data
        # The file is mapped into memory: one that is cut short while it is read ends the process, and its launcher
        # records that.
        try:
            self._ffcv = opened(data.file)
        except Exception as error:  # of many types
            raise damaged(data.file, f"FFCV says {plain(str(error), 200)}") from error

    def read(
        self, split: Literal["train", "held_out"], batches: Sequence[Tensor], epoch: int | None = None
    ) -> Iterator[Tensor]:
        """Images by their numbers, uint8, B x 3 x S x S, in main memory; for a GPU the channels are last there.

        Raises:
            VitinitError: FFCV fails or is silent for SILENT_S.
        """
        if not batches:
            return
        first = (self._data.train if split == "train" else self._data.held_out).first
        self._ffcv.batch_size = len(batches[0])
        numbers = (torch.cat(list(batches)) + first).numpy().astype(np.uint64)
        reading = None
        try:
            with threads_kept():
                reading = Reading(self._ffcv, numbers, self._data, self.pins)
                images_BCHW = reading.next()  # by now its thread has set the numbers of threads
            yield images_BCHW
            for _ in batches[1:]:
                yield reading.next()
        finally:
            if reading:
                reading.end()


@lru_cache(maxsize=4)
def opened(file: Path) -> Ffcv:
    """FFCV's loader of a file, for all runs of this process: it compiles itself, which takes more than a second."""
    with threads_kept():
        return Ffcv(
            str(file),
            batch_size=1,  # set anew for every iteration
            num_workers=1,
            os_cache=True,
            order=OrderOption.SEQUENTIAL,
            seed=0,  # else it draws one from numpy's global generator
            pipelines={"image": [SimpleRGBImageDecoder()]},
            drop_last=False,
        )


class Reading(EpochIterator):
    """FFCV's thread that reads batches ahead, with an end to waiting for it."""

    def __init__(self, ffcv: Ffcv, numbers: np.ndarray, data: BetonData, pins: bool) -> None:
        """Begins to read.

        Args:
            ffcv: with the size of the batches.
            numbers: uint64, of the images in the file, in order.
            data: what is in the file.
            pins: batches are to lie in page-locked memory.
        """
        self.data, self.pins = data, pins
        self.failure: BaseException | None = None
        super().__init__(ffcv, numbers)

    def run(self) -> None:
        """Target of the thread."""
        try:
            super().run()
        except BaseException as error:
            self.failure = error

    def run_pipeline(self, b_ix: int, batch_indices: np.ndarray, batch_slot: int, cuda_event: Any) -> Tensor:
        """One batch, uint8, B x S x S x 3, in the thread. Unless it is page-locked, FFCV writes into it again."""
        if self.terminate_event.is_set():
            raise StopIteration  # as FFCV itself ends its thread
        images_BHWC: np.ndarray
        (images_BHWC,) = super().run_pipeline(b_ix, batch_indices, batch_slot, cuda_event)
        images = torch.from_numpy(images_BHWC)
        return images.pin_memory() if self.pins else images

    def next(self) -> Tensor:
        """The next batch, uint8, B x 3 x S x S; there must be one."""
        deadline = time.monotonic() + SILENT_S
        while True:
            try:
                _, images_BHWC = self.output_queue.get(timeout=POLL_S)
                images_BCHW: Tensor = images_BHWC.permute(0, 3, 1, 2)
                # a GPU transposes faster; else a copy, because FFCV writes into the same memory again
                return images_BCHW if self.pins else images_BCHW.clone(memory_format=torch.contiguous_format)
            except Empty:
                if isinstance(self.failure, VitinitError):
                    raise self.failure from None
                if self.failure:
                    why = f"{type(self.failure).__name__}: {plain(str(self.failure), 200)}"
                    raise VitinitError(f"FFCV failed on {self.data.file}: {why}") from self.failure
                if time.monotonic() > deadline:
                    raise VitinitError(f"FFCV has read nothing from {self.data.file} for {SILENT_S:g} s") from None

    def end(self) -> None:
        """Lets the thread end, and its memory go; one that hangs is left behind."""
        self.terminate_event.set()
        deadline = time.monotonic() + 1
        while self.is_alive() and time.monotonic() < deadline:
            try:
                self.output_queue.get(timeout=0.01)
            except Empty:
                continue
        self.close()
