"""Facts that take torch to find out, kept on disk: who plans a grid again imports none. Imports no torch."""

from __future__ import annotations

import atexit
import json
import os
import sys
from contextlib import suppress
from functools import cache
from hashlib import sha256
from importlib.metadata import entry_points, version
from pathlib import Path
from typing import Any

from vitinit.benchmark.files.atomic import write_atomically
from vitinit.benchmark.image_files.images import below, stamp
from vitinit.initializers.plugins import ADAPTERS

ROOT = Path(__file__).parents[2]


def key_of(*parts: Any) -> str:
    """Return the key of a fact about JSON values."""
    return json.dumps(parts, sort_keys=True, default=str)


@cache
def _known() -> dict[str, Any]:
    """Return what is known of this code and these libraries; what is added is written at the end of the process.

    Nothing where torch is imported already (what this process has registered is in no file) or a package has adapters.
    """
    if "torch" in sys.modules or entry_points(group=ADAPTERS):
        return {}
    kept: dict[str, Any] = {}
    with suppress(OSError, ValueError):
        kept = json.loads(_file().read_bytes())
    if kept.get("code") != _code():
        kept = {"code": _code()}
    atexit.register(_save, kept, len(kept))
    return kept


def _save(facts: dict[str, Any], before: int) -> None:
    if len(facts) > before:
        with suppress(OSError):
            _file().parent.mkdir(parents=True, exist_ok=True)
            write_atomically(_file(), json.dumps(facts).encode())


def recall(key: str) -> Any:
    """Return what is known; None where nothing is."""
    return _known().get(key)


def keep(key: str, fact: Any) -> None:
    """Keep a fact, if there is a place for it."""
    if "code" in _known():
        _known()[key] = fact


def _file() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home, "vitinit", f"facts-{sha256(os.fsencode(ROOT)).hexdigest()[:8]}.json")


def _code() -> str:
    files = [file for part in ("initializers", "benchmark") for file in below(ROOT / part) if file.suffix != ".pyc"]
    return f"{stamp(files, ROOT)} {sys.version} {version('torch')} {version('timm')}"
