"""Attention maps and Gram matrices that a run has kept beside its record: `<root>/<study>/maps/<run_id>.npz`.

A zip of five arrays: `epochs`, `maps`, `grams`, `images` and `weights`, as `AttentionMaps` has them. zip's CRC-32 tells
of flipped bits. Imports no torch.
"""

import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from zipfile import ZipFile

import numpy as np

from vitinit.benchmark.files.reading import MIB, read, sha256
from vitinit.benchmark.records.record import RunRecord
from vitinit.benchmark.records.store import kept_path
from vitinit.initializers.errors import VitinitError, plain


@dataclass(frozen=True)
class AttentionMaps:
    """Attention of each layer's heads at some epochs, and the similarity of images in each layer."""

    epochs: tuple[int, ...]
    """Ascending; 0 is before the first."""
    maps_ELHNN: np.ndarray
    """Attention, mean over test images, float16; rows are queries, columns are keys."""
    grams_ELBnn: np.ndarray
    """Gram matrices of what each block puts out, float32: B batches of n of those images, compared with one another.
    Features are minus their mean over the batch. They serve `analysis.curves.cka`."""
    images: int
    """Number of images that the maps are the mean over."""
    weights: str
    """Fingerprint of the weights after the last step: that of the record to which they belong."""


def maps_to_bytes(maps: AttentionMaps) -> bytes:
    """The content of the file; the same maps give the same bytes."""
    buffer = io.BytesIO()
    epochs, images, weights = map(np.array, (maps.epochs, maps.images, maps.weights))
    np.savez(buffer, epochs=epochs, maps=maps.maps_ELHNN, grams=maps.grams_ELBnn, images=images, weights=weights)
    return buffer.getvalue()


def read_maps(root: Path, record: RunRecord) -> AttentionMaps | None:
    """The maps that are kept for a run; None where there are none.

    They may be of another run of the same run_id, that of a second machine say: compare the weights.

    Raises:
        VitinitError: the file cannot be read, is damaged, or does not fit the model.
    """
    path = kept_path(root, record.study, record.run_id, "maps")
    try:
        content = read(path, 256 * MIB)
        if record.files.get("maps") not in (None, sha256(path)):
            raise ValueError("other bytes than those that the run kept")
        # we write them as they are; packed, a few bytes may become gigabytes
        if sum(member.file_size for member in ZipFile(io.BytesIO(content)).infolist()) > len(content):
            raise ValueError("packed")
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            epochs = tuple(arrays["epochs"].tolist())
            maps = AttentionMaps(epochs, arrays["maps"], arrays["grams"], int(arrays["images"]), str(arrays["weights"]))
    except FileNotFoundError:
        return None
    except Exception as error:  # what numpy and zipfile raise for a damaged file is of many types
        raise VitinitError(f"{path}: no attention maps, or damaged: {plain(str(error), 200)}") from None
    shape = len(epochs), *(record.spec.model.attention_maps or ())
    attention, grams = maps.maps_ELHNN, maps.grams_ELBnn
    layout = epochs[:1] + epochs[-1:], attention.shape, grams.shape[:2], grams.ndim, attention.dtype, grams.dtype
    if layout != ((0, record.spec.recipe.epochs), shape, shape[:2], 5, np.float16, np.float32):
        raise VitinitError(
            f"{path}: no attention maps and Gram matrices of {' x '.join(map(str, shape))}, from epoch 0 to the last"
        )
    return maps


def check_maps(root: Path, study: str, done: Mapping[str, RunRecord]) -> tuple[int, list[str]]:
    """Every file of maps in a study: how many belong to a record and are whole, and a line for each other one."""
    folder, invalid = root / study, list[str]()
    files = [path for path in folder.glob("maps/*.npz") if not (folder / "unfinished" / path.stem).exists()]
    for path in sorted(files):
        try:
            if path.stem not in done:
                invalid.append(f"{path}: attention maps without a record")
            elif (maps := read_maps(root, done[path.stem])) and maps.weights != done[path.stem].weights:
                invalid.append(f"{path}: of another run than the record: other weights")
        except VitinitError as error:
            invalid.append(str(error))
    whole = len(files) - len(invalid)
    for run_id, record in done.items():
        for name in record.files.keys() - {"maps"}:
            path = kept_path(root, study, run_id, name)
            try:
                if sha256(path) != record.files[name]:
                    invalid.append(f"{path}: other bytes than those that the run kept")
            except FileNotFoundError:
                continue
            except OSError as error:
                invalid.append(f"{path}: cannot be read: {error.strerror}")
    return whole, invalid
