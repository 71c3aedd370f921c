"""Loaders: sources of batches."""

from __future__ import annotations

import torch

from vitinit.benchmark.image_files.arrays import Data
from vitinit.benchmark.image_files.beton import threads_kept
from vitinit.benchmark.image_files.full_size import FullSizeData
from vitinit.benchmark.spec import Recipe
from vitinit.initializers.errors import VitinitError, plain
from vitinit.runners.loaders.base import ALONE, Loader, Shard
from vitinit.runners.loaders.choice import OpenedData, open_data
from vitinit.runners.loaders.full_size import FullSizeLoader
from vitinit.runners.loaders.resident import ResidentLoader

__all__ = ["Loader", "OpenedData", "make_loader", "open_data"]


def make_loader(data: OpenedData, recipe: Recipe, seed: int, device: torch.device, shard: Shard = ALONE) -> Loader:
    """The loader for this kind of data.

    Raises:
        VitinitError: more processes than can share a batch, or FFCV cannot be imported.
    """
    if isinstance(data, FullSizeData):
        return FullSizeLoader(data, recipe, seed, device, shard)
    if isinstance(data, Data):
        return ResidentLoader(data, recipe, seed, device, shard)
    try:
        with threads_kept():
            from vitinit.runners.loaders.ffcv import FfcvLoader
    except (ImportError, OSError) as error:
        raise VitinitError(f"FFCV is installed but cannot be imported: {plain(str(error), 200)}") from error
    return FfcvLoader(data, recipe, seed, device, shard)
