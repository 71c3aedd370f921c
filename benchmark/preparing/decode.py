"""Decoding a dataset once and for all into a file that FFCV reads: `benchmark/image_files/beton.py`."""

from __future__ import annotations

import hashlib
import io
import os
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch

from vitinit.benchmark.datasets.dataset import Report
from vitinit.benchmark.datasets.load import sources
from vitinit.benchmark.files.atomic import sync_folder, write_atomically
from vitinit.benchmark.image_files.arrays import Source, Sources, levels, statistics
from vitinit.benchmark.image_files.beton import (
    BETON,
    ENTRY,
    FOLDER,
    INDEX,
    BetonManifest,
    ffcv_missing,
    folder_stem,
    frame_digest,
    names_digest,
    prepared,
    threads_kept,
    with_full_path,
)
from vitinit.benchmark.image_files.images import no_bombs
from vitinit.benchmark.image_files.layout import MANIFEST
from vitinit.benchmark.image_files.packing import check_room, scratch_beside
from vitinit.benchmark.spec import DatasetSpec
from vitinit.initializers.errors import VitinitError

PAGE = 2**23
"""Bytes that FFCV reads at once; whole images lie in a page."""
CHUNK = 64
"""So many images are decoded by one thread at a time."""


def prepare_beton(
    spec: DatasetSpec, image_size: int, data_dir: Path, report: Report, threads: int
) -> tuple[Path, BetonManifest]:
    """Write the images of a dataset as a run sees them, before augmentation; all but a few are on the disk only.

    The folder appears whole or not at all; what an interrupted preparation leaves is removed by the next one.

    Args:
        spec: any dataset but a packed one, with or without `train_size`.
        image_size: of the model, in pixels.
        data_dir: where the dataset is, and where its folder is made.
        report: told how many images are decoded, and of how many.
        threads: how many decode.

    Returns:
        The folder, and what it says of itself.

    Raises:
        VitinitError: FFCV is not installed, the dataset cannot be used, it is prepared already or is being prepared,
            or the disk has no room.
    """
    source = sources(spec, image_size, data_dir)
    if source.train.labels.ndim > 1:
        raise VitinitError(f"{spec.label} has masks, which FFCV does not read; --loader resident does")
    names, root = names_digest(spec), data_dir / FOLDER
    stem = folder_stem(spec, image_size)

    def refuse_existing() -> None:
        for folder, manifest in prepared(spec, image_size, data_dir).items():
            if manifest.names == names:
                raise VitinitError(f"{spec.label} is prepared already in {folder}; move it away to do it again")

    refuse_existing()
    for name in source.classes:
        try:
            name.encode()
        except UnicodeEncodeError:
            raise VitinitError(f"dataset {spec.label}: the name of class {name!a} is no UTF-8") from None
    if missing := ffcv_missing():  # last: all that is checked above holds with or without FFCV
        raise VitinitError(missing)
    try:
        root.mkdir(parents=True, exist_ok=True)
        count = len(source.chosen) + len(source.test.labels)
        check_room(root, count * 3 * image_size**2)
        with scratch_beside(root / stem) as scratch:
            refuse_existing()  # another process may just have finished
            taken = _Taken(source, report, threads)
            pixels = write_beton(scratch / BETON, taken.images(), count, image_size)
            buffer = io.BytesIO()
            np.save(buffer, taken.index(), allow_pickle=False)
            index = buffer.getvalue()
            write_atomically(scratch / INDEX, index)
            mean, std = source.statistics or statistics(taken.levels)
            manifest = BetonManifest(
                dataset=with_full_path(spec),
                image_size=image_size,
                classes=list(source.classes),
                mean=mean,
                std=std,
                checksum=taken.checksum.hexdigest(),
                names=names,
                train=len(source.chosen),
                test=len(source.test.labels),
                size=(scratch / BETON).stat().st_size,
                pixels=pixels,
                sha256=frame_digest(index, scratch / BETON, pixels),
            )
            write_atomically(scratch / MANIFEST, manifest.model_dump_json(indent=1).encode())
            folder = root / f"{stem}-{manifest.checksum[:12]}"
            if folder.exists():
                raise VitinitError(f"{folder} is there: files were renamed, the images are the same; move it away")
            scratch.rename(folder)
        sync_folder(root)
    except OSError as error:
        raise VitinitError(f"cannot prepare {spec.label} in {root}: {error}") from error
    return folder, manifest


class _Taken:
    """The images of a dataset one by one, and what is found out about them on the way."""

    def __init__(self, source: Sources, report: Report, threads: int) -> None:
        self.source, self.report, self.threads = source, report, threads
        self.levels = np.zeros((3, 256), np.int64)
        self.crc32: list[int] = []
        self.checksum = hashlib.sha256()

    def images(self) -> Iterator[np.ndarray]:
        """uint8, S x S x 3: the training images that the spec asks for, then the test images."""
        source, whole = self.source, torch.arange(len(self.source.train.labels))
        # the statistics are those of the whole training split, whatever the subset
        read = source.chosen if source.statistics else whole
        test = torch.arange(len(source.test.labels))
        total = len(read) + len(test)
        kept = torch.isin(read, source.chosen)
        yield from self._split(source.train, read, kept, lambda done: self.report(done, total))
        self.checksum.update(source.train.labels[source.chosen].numpy().data)
        every = torch.ones(len(test), dtype=torch.bool)
        yield from self._split(source.test, test, every, lambda done: self.report(len(read) + done, total))
        self.checksum.update(source.test.labels.numpy().data)

    def index(self) -> np.ndarray:
        """N entries of dtype `ENTRY`, once all images are taken."""
        index = np.zeros(len(self.crc32), ENTRY)
        index["label"] = torch.cat([self.source.train.labels[self.source.chosen], self.source.test.labels]).numpy()
        index["crc32"] = self.crc32
        return index

    def _split(
        self, split: Source, numbers: torch.Tensor, kept: torch.Tensor, report: Callable[[int], None]
    ) -> Iterator[np.ndarray]:
        done = 0
        for images_NCHW in self._decoded(split, numbers):
            keep = kept[done : done + len(images_NCHW)]
            if split is self.source.train and not self.source.statistics:
                self.levels += levels(images_NCHW)
            for image_CHW in images_NCHW[keep]:
                self.checksum.update(image_CHW.contiguous().numpy().data)
                image_HWC = image_CHW.permute(1, 2, 0).contiguous().numpy()
                self.crc32.append(zlib.crc32(image_HWC))
                yield image_HWC
            done += len(images_NCHW)
            report(done)

    def _decoded(self, split: Source, numbers: torch.Tensor) -> Iterator[torch.Tensor]:
        """Chunks of images in order, some of them decoded ahead."""
        under_way: deque[Future[torch.Tensor]] = deque()
        with no_bombs(), ThreadPoolExecutor(self.threads) as pool:
            try:
                for chunk in numbers.split(CHUNK):
                    under_way.append(pool.submit(split.images, chunk))
                    if len(under_way) > self.threads:
                        yield under_way.popleft().result()
                while under_way:
                    yield under_way.popleft().result()
            finally:
                pool.shutdown(cancel_futures=True)


def write_beton(file: Path, images: Iterator[np.ndarray], count: int, image_size: int) -> tuple[int, int]:
    """Write a .beton with the parts of FFCV's writer, but in this process.

    Its own `from_indexed_dataset` waits for ever when one of its worker processes dies, of a full disk say.

    Returns:
        Where the pixels begin and end in the file.
    """
    with threads_kept():
        from ffcv.fields import RGBImageField
        from ffcv.memory_allocator import MemoryAllocator
        from ffcv.writer import DatasetWriter, handle_sample

    page = max(PAGE, 1 << (3 * image_size**2 - 1).bit_length())
    writer = DatasetWriter(str(file), {"image": RGBImageField(write_mode="raw")}, page_size=page, num_workers=1)
    writer.num_samples = count
    writer.prepare()
    try:
        metadata = np.frombuffer(writer.metadata_sm.buf, writer.metadata_type, count)
        try:
            allocator = MemoryAllocator(writer.fname, writer.data_region_start, page)
            with allocator:
                for number, image in enumerate(images):
                    handle_sample((image,), number, metadata.dtype.names, metadata, allocator, writer.fields)
        finally:
            del metadata  # it holds the shared memory
        end = allocator.offset + allocator.next_page_written.value * page
        if file.stat().st_size != end:
            raise OSError(f"{file} was not written to its end: is the disk full?")
        writer.finalize([allocator.allocations])
    finally:
        writer.metadata_sm.close()
        writer.metadata_sm.unlink()
    with file.open("rb+") as written:
        os.fsync(written.fileno())
    return allocator.offset, end
