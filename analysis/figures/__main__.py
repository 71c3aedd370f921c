"""Draw figures of records as PDF and PNG: `python -m analysis.figures`."""

from vitinit.analysis import command
from vitinit.analysis.figures.drawing import command_of
from vitinit.analysis.figures.registry import FIGURES

run = command_of(FIGURES, "Draw figures of records as PDF and PNG.")
main = command.main_of(run, __name__)
