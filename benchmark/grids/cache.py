"""Resolved grids, kept in the user's cache folder so that planning needs no torch. Imports no torch.

The key is a hash over everything that resolving depends on, so nothing here ever goes out of date: another grid,
another version of the code or of a package is another key. The cache may be deleted at any time, and is never needed: a
file that is missing or damaged, or a folder that cannot be written, only costs the time of resolving the grid.
"""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel

import initializers
from benchmark.files.atomic import write_atomically
from benchmark.files.cache import folder
from benchmark.spec import SCHEMA_VERSION

PACKAGES = ("torch", "timm", "pydantic")
CODE = (Path(__file__).parents[1], Path(initializers.__path__[0]))

Content = TypeVar("Content", bound=BaseModel)


def key(grid_file: bytes, seeds: Sequence[int] | None) -> str:
    """A hash over all that a resolved grid depends on: the file, the seeds given, our code and that of others."""
    digest = hashlib.sha256()
    versions = [f"{name} {version(name)}" for name in PACKAGES]
    parts = [grid_file, repr(seeds).encode(), f"{SCHEMA_VERSION} {platform.python_version()} {versions}".encode()]
    for root in CODE:
        for path in sorted(path for path in root.rglob("*") if path.suffix in (".py", ".yaml")):
            parts += [str(path.relative_to(root)).encode(), path.read_bytes()]
    for part in parts:
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()


def read(key: str, schema: type[Content]) -> Content | None:
    """What was written under this key; None if that is nothing, or not exactly that."""
    root = folder("grids")
    if root is None:
        return None
    try:
        check, _, text = (root / f"{key}.json").read_text(encoding="utf-8").partition("\n")
        # Without the hash, a damaged digit would be another grid.
        return schema.model_validate_json(text) if check == _hash(text) else None
    except (OSError, ValueError):  # a ValidationError and a UnicodeDecodeError are ValueErrors
        return None


def write(key: str, content: BaseModel) -> None:
    """Keep a resolved grid, where that is possible."""
    root = folder("grids")
    if root is None:
        return
    text = content.model_dump_json()
    with suppress(OSError):
        root.mkdir(parents=True, exist_ok=True)
        write_atomically(root / f"{key}.json", f"{_hash(text)}\n{text}".encode())


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
