"""What training starts from, layer by layer: the table `_start` as lines."""

from __future__ import annotations

import math
import textwrap
from typing import TYPE_CHECKING

from analysis.figures.registry import FIGURES
from analysis.frame import Study
from analysis.plotting.style import BAND, file_part, legend, line_with_band, looks, panels, safe
from analysis.series import Chart, Panel, Scale, lines, mean_distance
from analysis.tables.start import measured, starts

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

UNIFORM = {"entropy": lambda side: math.log(side**2), "distance": mean_distance}
"""Of uniform attention between all tokens of a grid, by its side."""
QK, VO = "W_q^T W_k", "W_proj W_v"
TITLES = {
    "QK norm": (QK, "norm"),
    "QK rank": (QK, "rank"),
    "QK cond.": (QK, "log10 condition"),
    "entropy": ("attention", "entropy (nats)"),
    "VO norm": (VO, "norm"),
    "VO rank": (VO, "rank"),
    "VO cond.": (VO, "log10 condition"),
    "distance": ("attention", "distance (tokens)"),
}
"""Of panels, in their order."""
FORMULAS = {QK: "$W_q^\\mathsf{T}W_k$", VO: "$W_{proj}W_v$"}
ACROSS = 4
WIDEST, NARROWEST = 2.8, 0.9
"""Points: a row that coincides with later ones is seen behind them."""


@FIGURES.numbers("start")
def start_charts(study: Study) -> dict[str, Chart]:
    """A chart per dataset, a panel per quantity, a line per row over its layers."""
    if not measured(study):
        return {}
    charts = {}
    for place, frame in starts(study).groupby("column"):
        models = [run.spec.model for row in study.rows for run in study.cells.get((str(place), row), ())]
        sides = {model.grid if model.attention_maps else None for model in models}  # None: not between all tokens
        side = sides.pop() if len(sides) == 1 else None
        found = lines(frame.groupby([frame["quantity"] + "\n" + frame["row"], "layer"])["value"])
        shown = []
        for quantity, title in TITLES.items():
            by_row = {row: found[f"{quantity}\n{row}"] for row in study.rows if f"{quantity}\n{row}" in found}
            reference = UNIFORM[quantity](side) if quantity in UNIFORM and side else None
            if by_row:
                shown.append(
                    Panel(": ".join(title), str(place), Scale("layer", quantity, "row"), by_row, reference=reference)
                )
        dotted = "uniform attention" if any(panel.reference for panel in shown) else ""
        name = f"start-{file_part([str(place)])}"
        charts[name] = Chart("At the start of training", str(place), shown, "heads and seeds", dotted)
    return charts


@FIGURES.add(
    "start",
    "no record holds the start of its run",
    caption="Rows that start alike in all panels differ by a pattern that none of these numbers tells.",
    place=11,
)
def start(study: Study) -> dict[str, Figure]:
    """The same as figures."""
    import numpy as np
    from matplotlib.ticker import MaxNLocator

    figures, known = {}, looks(study) if measured(study) else {}
    for name, chart in start_charts(study).items():
        title = textwrap.fill(f"{safe(chart.title)}, {safe(chart.where)}", 90)
        title += f"\n{BAND.replace('seeds', chart.over, 1)}"
        title += f"; dotted: {chart.reference}" if chart.reference else ""
        figure, grid = panels(len(chart.panels), 1.45, title, ACROSS, sharex=True)
        handles: dict[str, Line2D] = {}
        widths = dict(zip(study.rows, np.linspace(WIDEST, NARROWEST, len(study.rows)), strict=True))
        for axes, panel in zip(grid, chart.panels, strict=True):
            for row, numbers in panel.lines.items():
                handles[row] = line_with_band(axes, numbers, known[row])
                handles[row].set_linewidth(widths[row])
            if panel.reference is not None:
                axes.axhline(panel.reference, color="black", linewidth=0.8, linestyle=":")
            axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
            axes.yaxis.set_major_locator(MaxNLocator(4, integer="rank" in panel.title, min_n_ticks=1))
            of, what = TITLES[panel.scale.y]
            axes.set_title(f"{FORMULAS.get(of, of)}\n{what}", fontsize=8, y=1.0)
            axes.grid()
        for axes in grid[-ACROSS:]:
            axes.set_xlabel("layer")
            axes.tick_params(labelbottom=True)
        legend(figure, study, handles)
        figures[name] = figure
    return figures
