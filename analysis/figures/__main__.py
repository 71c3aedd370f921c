"""Figures from records as PDF and PNG: `python -m analysis.figures`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from vitinit.analysis.figures import drawing
from vitinit.analysis.figures.registry import FIGURES


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    return drawing.main(FIGURES, "Draw figures from records as PDF and PNG.", arguments)


if __name__ == "__main__":
    sys.exit(main())
