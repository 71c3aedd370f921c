"""Facts that take torch to find out, kept on disk: who plans a grid again imports none. Imports no torch."""

from __future__ import annotations

import atexit
import json
import os
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from hashlib import sha256
from importlib.metadata import entry_points, version
from pathlib import Path
from typing import Any

from vitinit.benchmark.files.atomic import write_atomically
from vitinit.benchmark.image_files.images import below, stamp
from vitinit.initializers.plugins import GROUPS

ROOT = Path(__file__).parents[2]


def fact(find_out: Callable[..., Any], *given: Any) -> Any:
    """Return what a function finds out of JSON values: once for this code and these libraries.

    What lies in files and packages of others is found out anew, and all of it where torch is imported anyway.
    """
    key, facts = f"{find_out.__name__} {given!r}", _known()
    if facts is None or re.search(r"\w:\w", key):
        return find_out(*given)
    if key not in facts:
        facts[key] = find_out(*given)
    return facts[key]


@cache
def _known() -> dict[str, Any] | None:
    if "torch" in sys.modules or any(entry_points(group=group) for group in GROUPS):
        return None
    files = [file for part in ("initializers", "benchmark") for file in below(ROOT / part) if file.suffix != ".pyc"]
    code = f"{ROOT} {stamp(files, ROOT)} {sys.version} {version('torch')} {version('timm')}"
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    path = Path(home, "vitinit", f"facts-{sha256(code.encode()).hexdigest()[:16]}.json")
    facts: dict[str, Any] = {}
    with suppress(OSError, ValueError):
        facts = json.loads(path.read_bytes())
    atexit.register(_save, path, facts)
    return facts


def _save(path: Path, facts: dict[str, Any]) -> None:
    if "torch" in sys.modules:  # something was found out
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, json.dumps(facts).encode())
