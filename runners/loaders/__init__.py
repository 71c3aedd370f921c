"""Where batches come from."""

from __future__ import annotations

import torch

from benchmark.datasets import Data
from benchmark.packed import PackedData
from benchmark.spec import Recipe
from runners.loaders.base import ALONE, Loader
from runners.loaders.packed import PackedLoader
from runners.loaders.resident import ResidentLoader
from runners.shard import Shard

__all__ = ["Loader", "make_loader"]


def make_loader(
    data: Data | PackedData, recipe: Recipe, seed: int, device: torch.device, shard: Shard = ALONE
) -> Loader:
    """The loader for this kind of data.

    Raises:
        VitinitError: more processes than can share a batch.
    """
    if isinstance(data, PackedData):
        return PackedLoader(data, recipe, seed, device, shard)
    return ResidentLoader(data, recipe, seed, device, shard)
