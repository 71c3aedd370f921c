"""Answers that take seconds to compute, kept in the user's cache folder. Imports no torch.

The key is a hash over everything that an answer depends on, so nothing here ever goes out of date: another question,
another version of the code or of a package is another key. The cache may be deleted at any time, and is never needed: a
file that is missing or damaged, or a folder that cannot be written, only costs the time of computing the answer.
"""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel

from vitinit.benchmark.files.atomic import write_atomically

PACKAGES = ("torch", "timm", "pydantic")

Content = TypeVar("Content", bound=BaseModel)


def folder(kind: str) -> Path | None:
    """A folder in $VITINIT_CACHE, else in `vitinit` in $XDG_CACHE_HOME or ~/.cache; None where VITINIT_CACHE is `off`.

    Args:
        kind: of what is kept, the folder's name.
    """
    ours = os.environ.get("VITINIT_CACHE", "")
    if ours == "off":
        return None
    if ours:
        return Path(ours) / kind
    given = os.environ.get("XDG_CACHE_HOME", "")
    # As the specification of XDG has it, a relative path is not valid.
    return Path(given if Path(given).is_absolute() else os.path.expanduser("~/.cache")) / "vitinit" / kind  # noqa: PTH111


def key(code: tuple[Path, ...], question: str) -> str:
    """A hash over all that an answer depends on: the question, our code that answers it, and that of others.

    Args:
        code: Files, and folders with all that is in them.
        question: Whatever makes another answer, as text.
    """
    return _hash(f"{_version(code)} {question}")


@cache
def _version(code: tuple[Path, ...]) -> str:
    """Version of all inputs when first asked: what this process has imported does not change after that."""
    digest = hashlib.sha256(f"{platform.python_version()} {[version(name) for name in PACKAGES]}".encode())
    for root in code:
        found = [root] if root.is_file() else sorted(p for p in root.rglob("*") if p.suffix in (".py", ".yaml"))
        for path in found:
            for part in (str(path.relative_to(root)).encode(), path.read_bytes()):
                digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()


def answer(
    kind: str,
    key: str | None,
    schema: type[Content],
    ask: Callable[[], Content],
    worth: Callable[[Content], bool] = lambda content: True,
) -> Content:
    """Return what was kept under a key, else the answer itself, which is kept from then on. Errors are never kept.

    Args:
        kind: Folder of the cache.
        key: See `key`; None: ask each time.
        schema: Type of the answer. A damaged file is asked anew.
        ask: Computes the answer.
        worth: Whether to keep it: not where code outside of the key has a part in it.
    """
    root = folder(kind) if key else None
    if root is None:
        return ask()
    file = root / f"{key}.json"
    with suppress(OSError, ValueError):  # a ValidationError and a UnicodeDecodeError are ValueErrors
        check, _, text = file.read_text(encoding="utf-8").partition("\n")
        if check == _hash(text):  # without the hash, a damaged digit would be another answer
            return schema.model_validate_json(text)
    content = ask()
    if worth(content):
        with suppress(OSError):
            text = content.model_dump_json()
            root.mkdir(parents=True, exist_ok=True)
            write_atomically(file, f"{_hash(text)}\n{text}".encode())
    return content


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
