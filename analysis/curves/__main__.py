"""Draw attention, gates and representations over epochs, as PDF and PNG: `python -m analysis.curves`."""

from __future__ import annotations

import sys
from functools import partial

from vitinit.analysis.curves.registry import CURVES
from vitinit.analysis.figures import drawing

main = partial(
    drawing.main, CURVES, "Draw what attention, gates and representations do over epochs, from records, as PDF and PNG."
)
"""The command line."""

if __name__ == "__main__":
    sys.exit(main())
