"""A prepared dataset: the bytes of its image files, unchanged, in one file a split, beside an index.

    <data-dir>/<dataset>/manifest.json      class names, counts, sizes, and the sha256 of each index; written last
    <data-dir>/<dataset>/train.images       the image files one after the other
    <data-dir>/<dataset>/train.index.npy    one `ENTRY` an image: where it is, its label, the sha256 of its bytes
    <data-dir>/<dataset>/val.images, val.index.npy

Images are read and decoded one by one, when they are asked for, and checked against their sha256 each time: that costs
a few hundredths of decoding, and nothing is ever trained on a damaged file.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, BinaryIO, Literal

import numpy as np
import torch
from PIL import Image
from pydantic import Field, NonNegativeInt, PositiveInt, ValidationError

from vitinit.benchmark.fields import Frozen, Sha256
from vitinit.benchmark.image_files.full_size import FullSize
from vitinit.benchmark.image_files.images import opened
from vitinit.benchmark.image_files.layout import MANIFEST, damaged, packed_files
from vitinit.initializers.errors import VitinitError

ENTRY = np.dtype([("offset", "<u8"), ("length", "<u4"), ("label", "<u2"), ("sha256", "u1", 32)])
"""One image in the index."""

FORMATS = ("JPEG", "PNG", "GIF", "PPM")
"""PIL's names of what is decoded. ImageNet and Pets have a few files of another format with a JPEG's name; PPM is what
bare pixels become (STL-10)."""


class SplitInfo(Frozen):
    """Manifest entry of one split."""

    images: PositiveInt
    size: NonNegativeInt
    """Bytes of the file with the images."""
    index_sha256: Sha256


class Manifest(Frozen):
    """Contents of the folder of a prepared dataset."""

    version: Literal[1] = 1
    classes: Annotated[list[str], Field(min_length=2)]
    train: SplitInfo
    val: SplitInfo


@dataclass(frozen=True)
class PackedSplit(FullSize):
    """Images that stay on the disk.

    Attributes:
        name: `train` or `val`.
        index: N entries of dtype `ENTRY`.
        file: the open file with the images.
    """

    name: str
    index: np.ndarray
    file: BinaryIO

    @cached_property
    def labels(self) -> torch.Tensor:  # type: ignore[override]
        """int64, N, an index into the classes."""
        return torch.from_numpy(self.index["label"].astype(np.int64))

    def image(self, number: int) -> Image.Image:
        """One image, decoded, RGB, in the size of its file. Safe to call from several threads.

        Raises:
            VitinitError: its bytes are not those that were prepared, or cannot be read.
        """
        entry = self.index[number]
        where = f"image {number} of {self.file.name}"
        try:
            # Unlike a memory map, a file that is cut short under us is an error here, not the end of the process.
            content = os.pread(self.file.fileno(), int(entry["length"]), int(entry["offset"]))
            if hashlib.sha256(content).digest() != entry["sha256"].tobytes():
                raise VitinitError(f"{where} is damaged: prepare the dataset again")
            with opened(io.BytesIO(content), FORMATS) as image:
                return image.convert("RGB")
        except VitinitError:
            raise
        except Exception as error:  # PIL's decoders raise errors of many types
            raise VitinitError(f"cannot read {where}: {error}") from error

    def part(self, numbers: np.ndarray) -> PackedSplit:
        """Some of its images, in this order."""
        return replace(self, index=self.index[numbers])

    def contents(self) -> Iterator[bytes | memoryview]:
        """Digests of the image files, and labels."""
        yield self.index["sha256"].tobytes()
        yield self.index["label"].tobytes()


def open_packed(folder: Path) -> tuple[PackedSplit, PackedSplit, tuple[str, ...]]:
    """Open a prepared dataset and check its index; no image is read.

    Returns:
        The training split, the images of `val`, and the classes.

    Raises:
        VitinitError: the folder is not what `prepare` has left there.
    """
    manifest = read_manifest(folder)
    train, val = _split("train", folder, manifest.train), _split("val", folder, manifest.val)
    return train, val, tuple(manifest.classes)


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of a prepared folder.

    Raises:
        VitinitError: it cannot be read, or is no manifest.
    """
    try:
        return Manifest.model_validate_json((folder / MANIFEST).read_bytes())
    except (OSError, ValidationError):
        raise damaged(folder / MANIFEST, "it cannot be read as a manifest") from None


def _split(name: str, folder: Path, info: SplitInfo) -> PackedSplit:
    images, index = (folder / file for file in packed_files(name))
    try:
        content = index.read_bytes()
        if hashlib.sha256(content).hexdigest() != info.index_sha256:
            raise damaged(index, "its sha256 is not the one in the manifest")
        file = images.open("rb")
        if (size := os.fstat(file.fileno()).st_size) != info.size:
            raise damaged(images, f"it has {size:,} bytes instead of {info.size:,}")
    except OSError as error:
        raise VitinitError(f"cannot read the prepared dataset: {error}") from None
    return PackedSplit(name, np.load(io.BytesIO(content), allow_pickle=False), file)
