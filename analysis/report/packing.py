"""Large parts of the page, compressed: a browser unpacks them by itself."""

from __future__ import annotations

import base64
import zlib


def packed(text: str) -> str:
    """Compress a text for an attribute or a script of the page: zlib, in base64."""
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode()
