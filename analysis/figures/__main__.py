"""Figures from records as PDF and PNG: `python -m analysis.figures`."""

from __future__ import annotations

import sys
from functools import partial

from vitinit.analysis.figures import drawing
from vitinit.analysis.figures.registry import FIGURES

main = partial(drawing.main, FIGURES, "Draw figures from records as PDF and PNG.")
"""The command line."""

if __name__ == "__main__":
    sys.exit(main())
