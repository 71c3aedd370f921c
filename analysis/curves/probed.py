"""Runs whose records hold probes, and helpers for their figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vitinit.analysis.frame import Study
from vitinit.analysis.series import Line
from vitinit.benchmark.records.record import RunRecord

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDEST, NARROWEST = 2.4, 0.9
"""Line widths in points, of the first and the last layer or head: where lines coincide, both stay visible."""
SAME = 0.02
"""Share of the y-axis: lines that are always closer look like one."""

NAMED = 4
"""Upper limit of cells without probes that are named."""


def coincide(lines: list[Line], height: float) -> bool:
    """Return True if two or more lines look like one on a y-axis of this height."""
    means = [line.mean for line in lines if len(line.mean) == len(lines[0].mean)]
    apart = max((max(values) - min(values) for values in zip(*means, strict=True)), default=0.0)
    return len(means) == len(lines) > 1 and apart <= SAME * height


def probed(study: Study) -> dict[str, dict[str, list[RunRecord]]]:
    """Return runs with probes, by column and row in the order of the table, then by seed."""
    found: dict[str, dict[str, list[RunRecord]]] = {}
    for (column, row), records in study.cells.items():
        if runs := [record for record in records if record.probes]:
            found.setdefault(column, {})[row] = runs
    return found


def without_probes(study: Study) -> list[str]:
    """Return a line that names cells without probes, if other cells have some."""
    missing = [f"{row} ({column})" for (column, row), runs in study.cells.items() if not any(r.probes for r in runs)]
    probed = len(missing) < len(study.cells)
    if not probed or not missing:
        return []
    more = f" and {len(missing) - NAMED} more" if len(missing) > NAMED else ""
    return [f"without probes, so in no figure of them: {', '.join(missing[:NAMED])}{more}"]


def outer_labels(grid: list[Axes], y: str) -> None:
    """Label the axes left of and below all panels; panels with no panel below them get epoch numbers."""
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
