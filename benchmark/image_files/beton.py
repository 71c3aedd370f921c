"""A dataset prepared for FFCV: its images in one file, decoded at their final size, or as JPEGs to be cropped.

    <data-dir>/ffcv/<dataset>-<size>px-<digest>/    a folder for each dataset, subset and size; <dataset>-jpeg-...
        manifest.json    labels, checksum and statistics; written last
        images.beton     FFCV's file: the training images, then the test images

Decoded pixels and their labels are those of `opened` (`benchmark/image_files/arrays.py`) for the same spec, and so is
the checksum. JPEGs are written anew, as FFCV does it for ImageNet, and have a checksum of their own. All are read with
FFCV (`runners/loaders/ffcv.py`).
"""

import hashlib
import os
import shlex
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch

from vitinit.benchmark.datasets.registry import get, train_and_val
from vitinit.benchmark.fields import Count, Frozen, Sha256, WholeNumber
from vitinit.benchmark.files.atomic import sync_folder
from vitinit.benchmark.image_files.arrays import CHUNK, Data, Split, statistics
from vitinit.benchmark.records.store import read_model, write_model
from vitinit.benchmark.spec import DatasetSpec
from vitinit.initializers.errors import VitinitError, os_errors

MANIFEST, BETON = "manifest.json", "images.beton"
PAGE = 2**23
"""Bytes that FFCV reads at once; whole images lie in a page."""
JPEG = {"write_mode": "jpg", "max_resolution": 500, "jpeg_quality": 90}
"""FFCV's settings for images in their own size: the longer side at most 500 pixels, as in its own files of ImageNet."""
STATISTICS_SIZE = 224
"""Side at which the pixels of such images are counted, where their mean and deviation are not known."""


class Manifest(Frozen):
    """Content of the folder of a prepared dataset."""

    classes: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    checksum: Sha256
    """As `Data.checksum`."""
    stamp: Sha256 | None
    """Checksum of the files of a folder of one's own, as they were."""
    labels: list[WholeNumber]
    """Those of the training images first."""
    train: Count
    """Number of training images."""
    size: Count
    """Bytes of the .beton."""


def load_beton(spec: DatasetSpec, image_size: int, data_dir: Path, jpegs: bool = False) -> Data:
    """Open what `vitinit data prepare` has made of a dataset, at this size or as JPEGs; no image is read.

    Raises:
        VitinitError: the spec asks for what a file does not hold, FFCV is not installed, the dataset is not prepared
            at this size, its files are damaged, or files have been added to or removed from the folder dataset since.
    """
    if spec.val_size is not None or spec.train_draw == "seed":
        raise VitinitError(
            f"{spec.label}: val_size and train_draw 'seed' are not for the loader ffcv, which reads what was prepared; "
            f"--loader {'auto' if jpegs else 'resident'} has them"
        )
    if missing := ffcv_missing():
        raise VitinitError(missing)
    size = None if jpegs else image_size
    folder, name = prepared_folder(spec, size, data_dir), f"{spec.name}:{spec.path}" if spec.path else spec.name
    options = f"--image-size {size}" if size else "--jpeg"
    options += f" --train-size {spec.train_size}" if spec.train_size else ""
    how = f"run 'vitinit data prepare {shlex.quote(name)} {options} --data-dir {shlex.quote(str(data_dir))}'"
    manifest = read_model(folder / MANIFEST, Manifest, f"what was prepared: move {folder} away and {how}")
    if manifest is None:
        state = f" at {size} px" if size else ", in JPEGs to be cropped,"
        raise VitinitError(f"{spec.label}{state} is not prepared for FFCV in {data_dir}: {how}")
    with os_errors("cannot read the prepared dataset"):
        if manifest.stamp != get(spec.name).own_files(spec).get("stamp"):
            raise VitinitError(f"{spec.label} has other files than when it was prepared: move {folder} away and {how}")
        # FFCV maps the file: one that was cut short would end the process.
        if (length := (folder / BETON).stat().st_size) != manifest.size:
            raise damaged(folder / BETON, f"it has {length:,} bytes instead of {manifest.size:,}")
    train, held_out = (Split(None, labels) for labels in torch.tensor(manifest.labels).tensor_split([manifest.train]))
    return Data(
        train,
        held_out,
        manifest.classes,
        manifest.mean,
        manifest.std,
        manifest.checksum,
        image_size,
        folder / BETON,
        jpegs,
    )


def damaged(file: Path, why: str) -> VitinitError:
    """Return the message for a file that differs from the prepared one."""
    return VitinitError(f"{file} is damaged ({why}): move {file.parent} away and prepare the dataset again")


def prepared_folder(spec: DatasetSpec, image_size: int | None, data_dir: Path) -> Path:
    """The folder of a dataset at a size, or in JPEGs; of a folder on this machine it depends on the full path."""
    if spec.path and spec.root.is_dir():
        spec = spec.model_copy(update={"path": str(spec.root.resolve())})
    size = f"{image_size}px" if image_size else "jpeg"
    return data_dir / f"ffcv/{spec.name}-{size}-{hashlib.sha256(spec.label.encode()).hexdigest()[:12]}"


def ffcv_missing() -> str | None:
    """Return the command that installs FFCV."""
    how = "apt-get install -y --no-install-recommends g++ python3-dev pkg-config libopencv-dev libturbojpeg0-dev"
    return None if find_spec("ffcv") else f"FFCV is not installed; on Debian: {how}; then: make ffcv"


@contextmanager
def threads_kept() -> Iterator[None]:
    """Puts the numbers of threads of torch and numba back: FFCV sets them for the whole process.

    It does so when it is imported, when a loader is made, and when an iteration begins, then in a thread of its own.
    """
    import numba

    before = torch.get_num_threads(), numba.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(before[0])
        numba.set_num_threads(before[1])


def prepare_beton(
    spec: DatasetSpec, image_size: int | None, data_dir: Path, report: Callable[[int, int], None]
) -> Path:
    """Write the images of a dataset as a run sees them, before augmentation; all but a few are on the disk only.

    The folder appears whole or not at all; what an interrupted preparation leaves is removed by the next one.

    Args:
        spec: any dataset, with or without `train_size`.
        image_size: of the model, in pixels; None writes JPEGs, for recipes that crop images of their own size.
        data_dir: where the dataset is, and where its folder is made.
        report: told how many images are decoded, and of how many.

    Returns:
        The folder.

    Raises:
        VitinitError: FFCV is not installed, the dataset cannot be used, it is prepared already, or the disk is
            full.
    """
    opened, folder = get(spec.name).opened(spec, data_dir), prepared_folder(spec, image_size, data_dir)
    if opened.train.labels.ndim > 1:
        raise VitinitError(f"{spec.label} has masks, which FFCV does not read; --loader resident does")
    if (folder / MANIFEST).is_file():
        raise VitinitError(f"{spec.label} is prepared already in {folder}; move it away to do it again")
    if missing := ffcv_missing():
        raise VitinitError(missing)
    chosen, _ = train_and_val(opened.train.labels.numpy(), spec, len(opened.classes), 0)
    splits, checksum = (opened.train.part(torch.from_numpy(chosen)), opened.test), hashlib.sha256()
    labels = torch.cat([split.labels for split in splits]).tolist()
    stamp = get(spec.name).own_files(spec).get("stamp")
    mean, std = opened.statistics or statistics(opened.train, image_size or STATISTICS_SIZE)
    if not image_size:
        checksum.update(str(JPEG).encode())

    def images() -> Iterator[np.ndarray]:
        """The training images that the spec asks for, then the test images, uint8, H x W x 3."""
        done = 0
        for split in splits:
            for chunk in torch.arange(len(split.labels)).split(CHUNK if image_size else CHUNK // 16):
                some = split.part(chunk)
                if image_size:
                    images_NCHW = some.sized(image_size)
                    checksum.update(images_NCHW.numpy().data)
                    yield from images_NCHW.permute(0, 2, 3, 1).contiguous().numpy()
                else:
                    for image in some.arrays(np.array):
                        checksum.update(image.data)
                        yield image
                done += len(chunk)
                report(done, len(labels))
            checksum.update(split.labels.numpy().data)

    scratch = folder.with_name(f".{folder.name}")
    with os_errors(f"cannot prepare {spec.label} in {folder.parent}"):
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(parents=True)
        try:
            write_beton(scratch / BETON, images(), len(labels), image_size)
            manifest = Manifest(
                classes=opened.classes,
                mean=mean,
                std=std,
                checksum=checksum.hexdigest(),
                stamp=stamp,
                labels=labels,
                train=len(chosen),
                size=(scratch / BETON).stat().st_size,
            )
            write_model(scratch / MANIFEST, manifest)
            scratch.rename(folder)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        sync_folder(folder.parent)
    return folder


def write_beton(file: Path, images: Iterator[np.ndarray], count: int, image_size: int | None) -> None:
    """Write a .beton with the parts of FFCV's writer, but in this process.

    Its own `from_indexed_dataset` waits for ever when one of its worker processes dies, of a full disk say.
    """
    with threads_kept():
        from ffcv.fields import RGBImageField
        from ffcv.memory_allocator import MemoryAllocator
        from ffcv.writer import DatasetWriter, handle_sample

    page = max(PAGE, 1 << (3 * (image_size or 1) ** 2 - 1).bit_length())
    field = RGBImageField(write_mode="raw") if image_size else RGBImageField(**JPEG)
    writer = DatasetWriter(str(file), {"image": field}, page_size=page, num_workers=1)
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
        if file.stat().st_size != allocator.offset + allocator.next_page_written.value * page:
            raise OSError(f"{file} was not written to its end: is the disk full?")
        writer.finalize([allocator.allocations])
    finally:
        writer.metadata_sm.close()
        writer.metadata_sm.unlink()
    with file.open("rb+") as written:
        os.fsync(written.fileno())
