"""Runs whose records hold probes, and what figures of them share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analysis.frame import Study
from analysis.text import one_line
from benchmark.records.record import RunRecord

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def probed(study: Study) -> dict[str, dict[str, list[RunRecord]]]:
    """By column and row, in the order of the table: the runs whose records hold probes, by seed."""
    found: dict[str, dict[str, list[RunRecord]]] = {}
    for (column, row), records in study.cells.items():
        if runs := [record for record in records if record.probes]:
            found.setdefault(column, {})[row] = runs
    return found


def without_probes(study: Study) -> list[str]:
    """A line for the cells of the table whose records hold no probes, where those of others do."""
    missing = [f"{row} ({column})" for (column, row), runs in study.cells.items() if not any(r.probes for r in runs)]
    probed = len(missing) < len(study.cells)
    return [one_line(f"without probes, so in no figure of them: {', '.join(missing)}")] if probed and missing else []


def outer_labels(grid: list[Axes], across: int, y: str) -> None:
    """Names of the axes left and below all panels; numbers of epochs above places without one too."""
    from matplotlib.ticker import MaxNLocator

    for place, axes in enumerate(grid):
        axes.xaxis.set_major_locator(MaxNLocator(3 if across > 3 else 5, integer=True))
        if place % across == 0:
            axes.set_ylabel(y)
        if place + across >= len(grid):
            axes.tick_params(labelbottom=True)
        if place // across == (len(grid) - 1) // across:
            axes.set_xlabel("epoch")
