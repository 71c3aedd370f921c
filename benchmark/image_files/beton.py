"""A dataset prepared for FFCV: its images, decoded, at their final size, in one file.

    <data-dir>/ffcv/<dataset>-<size>px-<checksum>/    a folder for each dataset, subset and size
        manifest.json    what is in the folder; written last
        images.beton     FFCV's file: the pixels of the training images, then of the test images
        index.npy        one `ENTRY` an image: its label, and the CRC-32 of its pixels

The pixels and labels are those of `Data` (`benchmark/image_files/arrays.py`) for the same spec, and so is the checksum.
They are written and read with FFCV (`benchmark/preparing/decode.py`, `runners/loaders/ffcv.py`); nothing here needs it.
"""

from __future__ import annotations

import hashlib
import io
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import torch
from pydantic import Field, PositiveFloat, PositiveInt, ValidationError

from vitinit.benchmark.fields import Fraction, Frozen, Sha256
from vitinit.benchmark.image_files.images import image_names
from vitinit.benchmark.image_files.layout import MANIFEST, damaged
from vitinit.benchmark.spec import DatasetSpec
from vitinit.initializers.errors import VitinitError

FOLDER = "ffcv"
BETON, INDEX = "images.beton", "index.npy"
ENTRY = np.dtype([("label", "<i8"), ("crc32", "<u4")])
"""One image in the index."""

HOW_TO_INSTALL = (
    "on Debian: apt-get install -y --no-install-recommends g++ python3-dev pkg-config libopencv-dev libturbojpeg0-dev; "
    "then: make ffcv"
)


class BetonManifest(Frozen):
    """Contents of the folder of a dataset prepared for FFCV."""

    version: Literal[1] = 1
    dataset: DatasetSpec
    """With the full path of a folder."""
    image_size: PositiveInt
    classes: Annotated[list[str], Field(min_length=2)]
    mean: tuple[Fraction, ...]
    std: tuple[PositiveFloat, ...]
    checksum: Sha256
    """`Data.checksum`."""
    names: Sha256
    """`names_digest` of the dataset that the images were taken from."""
    train: PositiveInt
    test: PositiveInt
    """Numbers of images."""
    size: PositiveInt
    """Bytes of the .beton."""
    pixels: tuple[PositiveInt, PositiveInt]
    """Return the first and last byte of the pixels."""
    sha256: Sha256
    """Over the index, and all of the .beton that is not pixels: see `frame_digest`."""


@dataclass(frozen=True)
class BetonSplit:
    """Images that stay on the disk.

    Attributes:
        labels: int64, N, an index into `BetonData.classes`.
        first: where the split begins among the images of the file.
    """

    labels: torch.Tensor
    first: int


@dataclass(frozen=True)
class BetonData:
    """A dataset prepared for FFCV, opened. All but the images is as in `arrays.Data`.

    Attributes:
        crc32: of the pixels of each image of the file, S x S x 3.
        file: the .beton.
    """

    train: BetonSplit
    held_out: BetonSplit
    classes: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    checksum: str
    image_size: int
    crc32: np.ndarray
    file: Path


def load_beton(spec: DatasetSpec, image_size: int, data_dir: Path) -> BetonData:
    """Open what `vitinit data prepare` has made of a dataset; no image is read.

    Raises:
        VitinitError: it is not prepared at this size, its files are damaged, files have been added to or removed from
            the folder dataset since.
    """
    found = prepared(spec, image_size, data_dir)
    names = names_digest(spec)
    current = {folder: manifest for folder, manifest in found.items() if manifest.names == names}
    if not current:
        how = f"run '{how_to_prepare(spec, image_size, data_dir)}'"
        if found:
            raise VitinitError(f"files of {spec.label} were added or removed since it was prepared for FFCV: {how}")
        raise VitinitError(f"{spec.label} at {image_size} px is not prepared for FFCV in {data_dir}: {how}")
    if len(current) > 1:
        raise VitinitError(f"move away all but one of {', '.join(map(str, current))}: they are of the same dataset")
    ((folder, manifest),) = current.items()
    index = _index(folder, manifest)
    labels = torch.from_numpy(index["label"].astype(np.int64))
    return BetonData(
        train=BetonSplit(labels[: manifest.train], 0),
        held_out=BetonSplit(labels[manifest.train :], manifest.train),
        classes=tuple(manifest.classes),
        mean=manifest.mean,
        std=manifest.std,
        checksum=manifest.checksum,
        image_size=manifest.image_size,
        crc32=index["crc32"].copy(),
        file=folder / BETON,
    )


def refuse_parts(spec: DatasetSpec) -> None:
    """Refuse validation and subsets redrawn by seed: a file holds one training set and the test split."""
    if spec.val_size is not None or spec.train_draw == "seed":
        raise VitinitError(
            f"{spec.label}: val_size and train_draw 'seed' are not for the loader ffcv, which reads what was prepared; "
            "--loader resident has them"
        )


def prepared(spec: DatasetSpec, image_size: int, data_dir: Path) -> dict[Path, BetonManifest]:
    """The folders that hold this dataset at this size, or held it as it was once.

    Raises:
        VitinitError: a manifest cannot be read.
    """
    found = {}
    try:
        files = sorted((data_dir / FOLDER).glob(f"{folder_stem(spec, image_size)}-*/{MANIFEST}"))
    except OSError as error:
        raise VitinitError(f"cannot look for what is prepared for FFCV: {error}") from error
    for file in files:
        try:
            found[file.parent] = BetonManifest.model_validate_json(file.read_bytes())
        except (OSError, ValidationError):
            raise damaged(file, "it cannot be read as a manifest") from None
    return {folder: manifest for folder, manifest in found.items() if manifest.dataset == with_full_path(spec)}


def folder_stem(spec: DatasetSpec, image_size: int) -> str:
    """Return the prefix of its folder's name; the checksum follows."""
    path = with_full_path(spec).path
    place = [hashlib.sha256(path.encode()).hexdigest()[:8]] if path else []
    subset = [str(spec.train_size)] if spec.train_size else []
    return "-".join([spec.name, *place, *subset, f"{image_size}px"])


def with_full_path(spec: DatasetSpec) -> DatasetSpec:
    """The same dataset, whatever the current folder."""
    return spec.model_copy(update={"path": str(Path(spec.path).resolve())}) if spec.path else spec


def names_digest(spec: DatasetSpec) -> str:
    """sha256 over the names of the image files of a dataset with a path; the others are the same for everybody."""
    names = image_names(Path(spec.path)) if spec.path else []
    return hashlib.sha256("\0".join(names).encode(errors="surrogateescape")).hexdigest()


def how_to_prepare(spec: DatasetSpec, image_size: int, data_dir: Path) -> str:
    """The command line that prepares this dataset."""
    name = f"{spec.name}:{spec.path}" if spec.path else spec.name
    words = ["vitinit", "data", "prepare", name, "--image-size", str(image_size)]
    words += ["--train-size", str(spec.train_size)] if spec.train_size else []
    return shlex.join([*words, "--data-dir", str(data_dir)])


def ffcv_missing() -> str | None:
    """Return the command that installs FFCV."""
    return None if find_spec("ffcv") else f"FFCV is not installed; {HOW_TO_INSTALL}"


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


def frame_digest(index: bytes, beton: Path, pixels: tuple[int, int]) -> str:
    """sha256 over the index and all of the .beton but its pixels: each image is checked when it is read.

    FFCV believes what stands there, down to the addresses in memory that it writes to.
    """
    digest = hashlib.sha256(index)
    with beton.open("rb") as file:
        digest.update(file.read(pixels[0]))
        file.seek(pixels[1])
        digest.update(file.read())
    return digest.hexdigest()


def _index(folder: Path, manifest: BetonManifest) -> np.ndarray:
    beton = folder / BETON
    try:
        if (size := beton.stat().st_size) != manifest.size:
            raise damaged(beton, f"it has {size:,} bytes instead of {manifest.size:,}")
        content = (folder / INDEX).read_bytes()
        if frame_digest(content, beton, manifest.pixels) != manifest.sha256:
            raise damaged(beton, f"its sha256, or that of {INDEX}, is not the one in the manifest")
    except OSError as error:
        raise VitinitError(f"cannot read the prepared dataset: {error}") from None
    return np.load(io.BytesIO(content), allow_pickle=False)
