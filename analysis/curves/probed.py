"""Runs whose records hold probes, and what figures of them share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vitinit.analysis.frame import Study
from vitinit.analysis.series import Line
from vitinit.benchmark.records.record import RunRecord

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDEST, NARROWEST = 2.4, 0.9
"""Points: lines of the first and of the last layer or head, which is drawn above it where they are the same."""
SAME = 0.02
"""Share of the y-axis: lines that are never further apart look like one."""

NAMED = 4
"""So many cells without probes are named."""


def coincide(lines: list[Line], height: float) -> bool:
    """Return True if two or more lines look like one on a y-axis of this height."""
    means = [line.mean for line in lines if len(line.mean) == len(lines[0].mean)]
    apart = max((max(values) - min(values) for values in zip(*means, strict=True)), default=0.0)
    return len(means) == len(lines) > 1 and apart <= SAME * height


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
    if not probed or not missing:
        return []
    more = f" and {len(missing) - NAMED} more" if len(missing) > NAMED else ""
    return [f"without probes, so in no figure of them: {', '.join(missing[:NAMED])}{more}"]


def outer_labels(grid: list[Axes], y: str) -> None:
    """Names of the axes left and below all panels; numbers of epochs above places without one too."""
    from matplotlib.ticker import MaxNLocator

    if figure := grid[0].get_figure(root=True):  # once: panels are lower than their names are long
        figure.supylabel(y, fontsize=8)
    spec = grid[0].get_subplotspec()
    across = spec.get_gridspec().ncols if spec else 1
    for place, axes in enumerate(grid):
        axes.xaxis.set_major_locator(MaxNLocator(3 if across > 3 else 5, integer=True))
        if place + across >= len(grid):
            axes.tick_params(labelbottom=True)
        if place // across == (len(grid) - 1) // across:
            axes.set_xlabel("epoch")
