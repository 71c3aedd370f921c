"""Answers that take seconds to compute, kept in the user's cache folder. Imports no torch.

The key is a hash over everything that an answer depends on, so nothing here ever goes out of date: another question,
another version of the code or of a package is another key. The cache may be deleted at any time, and is never needed: a
file that is missing or damaged, or a folder that cannot be written, only costs the time of computing the answer.
"""

from __future__ import annotations

import hashlib
import platform
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel

from vitinit.benchmark.files.atomic import write_atomically
from vitinit.benchmark.files.cache import folder

PACKAGES = ("torch", "timm", "pydantic")

Content = TypeVar("Content", bound=BaseModel)


def key(code: tuple[Path, ...], question: str) -> str:
    """A hash over all that an answer depends on: the question, our code that answers it, and that of others.

    Args:
        code: Files, and folders with all that is in them.
        question: Whatever makes another answer, as text.
    """
    return _hash(f"{_version(code)} {question}")


@cache
def _version(code: tuple[Path, ...]) -> str:
    """Of everything as it is when it is first asked: what this process has imported does not change after that."""
    digest = hashlib.sha256(f"{platform.python_version()} {[version(name) for name in PACKAGES]}".encode())
    for root in code:
        found = [root] if root.is_file() else sorted(p for p in root.rglob("*") if p.suffix in (".py", ".yaml"))
        for path in found:
            for part in (str(path.relative_to(root)).encode(), path.read_bytes()):
                digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()


def read(kind: str, key: str, schema: type[Content]) -> Content | None:
    """What was written under this key; None if that is nothing, or not exactly that."""
    root = folder(kind)
    if root is None:
        return None
    try:
        check, _, text = (root / f"{key}.json").read_text(encoding="utf-8").partition("\n")
        # Without the hash, a damaged digit would be another answer.
        return schema.model_validate_json(text) if check == _hash(text) else None
    except (OSError, ValueError):  # a ValidationError and a UnicodeDecodeError are ValueErrors
        return None


def write(kind: str, key: str, content: BaseModel) -> None:
    """Keep an answer, where that is possible."""
    root = folder(kind)
    if root is None:
        return
    text = content.model_dump_json()
    with suppress(OSError):
        root.mkdir(parents=True, exist_ok=True)
        write_atomically(root / f"{key}.json", f"{_hash(text)}\n{text}".encode())


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
