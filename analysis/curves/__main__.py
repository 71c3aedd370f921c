"""Draw attention, gates and representations over epochs, as PDF and PNG: `python -m analysis.curves`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from vitinit.analysis.curves.registry import CURVES
from vitinit.analysis.figures import drawing


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    description = "Draw what attention, gates and representations do over epochs, from records, as PDF and PNG."
    return drawing.main(CURVES, description, arguments)


if __name__ == "__main__":
    sys.exit(main())
