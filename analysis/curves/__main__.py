"""Draw attention, gates and representations over epochs as PDF and PNG: `python -m analysis.curves`."""

from vitinit.analysis import command
from vitinit.analysis.curves.registry import CURVES
from vitinit.analysis.figures.drawing import command_of

run = command_of(CURVES, "Draw attention, gates and representations over epochs as PDF and PNG.")
main = command.main_of(run, __name__)
