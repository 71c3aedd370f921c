"""Cache folder for results that can be computed again. Imports no torch."""

from __future__ import annotations

import os
from pathlib import Path


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
