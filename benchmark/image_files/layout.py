"""Names of the files of prepared datasets, and what is said of a damaged one. All that planning needs; no torch."""

from __future__ import annotations

from pathlib import Path

from vitinit.initializers.errors import VitinitError

MANIFEST = "manifest.json"
"""Written last: a folder without it holds no prepared dataset."""


def packed_files(split: str) -> tuple[str, str]:
    """Names of the files with the images and with the index of one split of a packed dataset."""
    return f"{split}.images", f"{split}.index.npy"


def is_packed(folder: Path) -> bool:
    """Return True if all files of a packed dataset are there."""
    return all((folder / name).is_file() for name in (MANIFEST, *packed_files("train"), *packed_files("val")))


def damaged(file: Path, why: str) -> VitinitError:
    """Return the message for a file that differs from the prepared one."""
    return VitinitError(f"{file} is damaged ({why}): move {file.parent} away and prepare the dataset again")
