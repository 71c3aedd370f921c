"""Loaders: sources of batches; the choice of one for a dataset, and the opened dataset for it."""

from __future__ import annotations

import os
from pathlib import Path

import torch

from vitinit.benchmark.datasets import load as datasets
from vitinit.benchmark.datasets import registry
from vitinit.benchmark.image_files.arrays import Data
from vitinit.benchmark.image_files.beton import MANIFEST, ffcv_missing, load_beton, prepared_folder, threads_kept
from vitinit.benchmark.spec import DatasetSpec, Recipe
from vitinit.initializers.errors import VitinitError, plain
from vitinit.initializers.streams import derive
from vitinit.runners.loaders.base import Loader, ResidentLoader
from vitinit.runners.loaders.full_size import FullSizeLoader
from vitinit.runners.training.distributed import ALONE, World

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
    if reason := registry.unavailable(spec, data_dir):
        raise VitinitError(reason)
    dataset, why = registry.get(spec.name), ""
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
