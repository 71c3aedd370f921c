"""Loaders: sources of batches."""

from __future__ import annotations

import torch

from vitinit.benchmark.image_files.arrays import Data
from vitinit.benchmark.image_files.beton import threads_kept
from vitinit.benchmark.spec import Recipe
from vitinit.initializers.errors import VitinitError, plain
from vitinit.runners.loaders.base import Loader
from vitinit.runners.loaders.choice import open_data
from vitinit.runners.loaders.full_size import FullSizeLoader
from vitinit.runners.loaders.resident import ResidentLoader
from vitinit.runners.training.distributed import ALONE, World

__all__ = ["Loader", "make_loader", "open_data"]


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
