"""The digest of a record's file, computed as the format says and not by the code that reads it."""

from __future__ import annotations

import hashlib
import json
from typing import Any


def sealed(content: dict[str, Any]) -> bytes:
    """The file that would hold this JSON if a run had written it."""
    return _sealed(json.dumps(content, indent=1).removesuffix("\n}").encode())


def sealed_text(file: bytes, old: bytes, new: bytes) -> bytes:
    """A file with another text in it, and a digest that fits."""
    above = file.rpartition(b',\n "digest": ')[0]
    assert old in above
    return _sealed(above.replace(old, new, 1))


def _sealed(above: bytes) -> bytes:
    return above + b',\n "digest": "' + hashlib.blake2b(above, digest_size=16).hexdigest().encode() + b'"\n}\n'
