"""Named random streams."""

from __future__ import annotations

from vitinit.initializers.streams import derive, stream

__all__ = ["derive", "stream"]
