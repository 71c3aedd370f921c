"""Random images in the file that FFCV reads."""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np

from vitinit.benchmark.image_files.arrays import Data
from vitinit.benchmark.image_files.beton import BetonData, BetonSplit
from vitinit.benchmark.preparing.decode import write_beton

FFCV_IMAGES = 10_000


def beton(data: Data, folder: Path) -> BetonData:
    """The same, for FFCV; of the training images only some."""
    kept = data.train.images[:FFCV_IMAGES].permute(0, 2, 3, 1).contiguous().numpy()
    images = [*kept, *data.held_out.images.permute(0, 2, 3, 1).contiguous().numpy()]
    file = folder / "images.beton"
    write_beton(file, iter(images), len(images), kept.shape[1])
    return BetonData(
        BetonSplit(data.train.labels[: len(kept)], 0),
        BetonSplit(data.held_out.labels, len(kept)),
        data.classes,
        data.mean,
        data.std,
        data.checksum,
        kept.shape[1],
        np.array([zlib.crc32(image) for image in images]),
        file,
    )
