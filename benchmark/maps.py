"""Attention maps that a run has kept beside its record: `<root>/<study>/maps/<run_id>.npz`. Imports no torch.

A zip of four arrays: `before` and `after` training (float16, layers x heads x N x N), `images` (how many they are the
mean over) and `weights` (the fingerprint in the record that they belong to). zip's CRC-32 tells of flipped bits.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmark.record import RunRecord
from benchmark.store import maps_path
from initializers.errors import VitinitError, plain


@dataclass(frozen=True)
class AttentionMaps:
    """What each layer's heads attend to, mean over test images; rows are queries, columns are keys."""

    before_LHNN: np.ndarray
    """At initialisation, float16."""
    after_LHNN: np.ndarray
    """After the last step, float16."""
    images: int
    """How many they are the mean over."""
    weights: str
    """Fingerprint of the weights after the last step: that of the record to which they belong."""


def maps_to_bytes(maps: AttentionMaps) -> bytes:
    """The content of the file; the same maps give the same bytes."""
    buffer = io.BytesIO()
    np.savez(buffer, before=maps.before_LHNN, after=maps.after_LHNN, images=maps.images, weights=maps.weights)
    return buffer.getvalue()


def read_maps(root: Path, record: RunRecord) -> AttentionMaps | None:
    """The maps that are kept for a run; None where there are none.

    They may be of another run of the same run_id, that of a second machine say: compare the weights.

    Raises:
        VitinitError: the file cannot be read, is damaged, or does not fit the model.
    """
    path = maps_path(root, record.study, record.run_id)
    try:
        with np.load(path, allow_pickle=False) as arrays:
            before, after = arrays["before"], arrays["after"]
            images, weights = int(arrays["images"]), str(arrays["weights"])
    except FileNotFoundError:
        return None
    except Exception as error:  # what numpy and zipfile raise for a damaged file is of many types
        raise VitinitError(f"{path}: no attention maps, or damaged: {plain(str(error), 200)}") from None
    model = record.spec.model
    shape = (model.depth, model.heads, model.grid**2, model.grid**2)
    for maps in (before, after):
        if maps.shape != shape or maps.dtype != np.float16 or not ((maps >= 0) & (maps <= 1.01)).all():
            raise VitinitError(f"{path}: no attention maps of {' x '.join(map(str, shape))} shares of 1")
    return AttentionMaps(before, after, images, weights)


def check_maps(root: Path, study: str, done: Mapping[str, RunRecord]) -> tuple[int, list[str]]:
    """Every file of maps in a study: how many belong to a record and are whole, and a line for each other one."""
    valid, wrong = 0, []
    for path in sorted((root / study / "maps").glob("*.npz")):
        record = done.get(path.stem)
        try:
            if record:
                maps = read_maps(root, record)
                if maps and maps.weights != record.weights:
                    wrong.append(plain(f"{path}: of another run than the record: the final weights are others"))
                else:
                    valid += 1
            elif not (root / study / "unfinished" / path.stem).exists():  # else its record is to come
                wrong.append(plain(f"{path}: attention maps without a record"))
        except VitinitError as error:
            wrong.append(plain(str(error), 400))
    return valid, wrong
