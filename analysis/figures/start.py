"""State at the start of training, layer by layer: the table `_start` as lines."""

from __future__ import annotations

import math
import textwrap
from typing import TYPE_CHECKING

from vitinit.analysis.figures.registry import FIGURES
from vitinit.analysis.frame import Study
from vitinit.analysis.plotting.gains import one_line_each
from vitinit.analysis.plotting.style import counted, file_part, legend_below, panels, safe
from vitinit.analysis.series import Chart, Panel, Scale, lines, mean_distance
from vitinit.analysis.tables.start import has_start, starts

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

UNIFORM = {"entropy": lambda side: math.log(side**2), "distance": mean_distance}
"""Values for uniform attention between all tokens of a grid, by its side."""
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
"""Titles of panels, in their order."""
FORMULAS = {QK: "$W_q^\\mathsf{T}W_k$", VO: "$W_{proj}W_v$"}
ACROSS = 4
HIGH = 0.16
"""Inches of a row."""
LIGHTEST = 0.9
"""Share of the colour map in use; the rest is too light for white paper."""


@FIGURES.numbers("start")
def start_charts(study: Study) -> dict[str, Chart]:
    """A chart per dataset, a panel per quantity, a line per row over its layers."""
    if not has_start(study):
        return {}
    charts = {}
    for place, frame in starts(study).groupby("column"):
        models = [run.spec.model for row in study.rows for run in study.cells.get((str(place), row), ())]
        sides = {model.attention_side for model in models}  # None: not between all tokens
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
    """A figure per dataset: a panel per quantity, a line per row, a dot per layer."""
    figures = {}
    for name, chart in start_charts(study).items():
        rows = [row for row in study.rows if any(row in panel.lines for panel in chart.panels)]
        depth = max(len(line.x) for panel in chart.panels for line in panel.lines.values())
        caption = f"dots: layers, from dark to light, means over {chart.over}"
        caption += f"; dotted: {chart.reference}" if chart.reference else ""
        title = textwrap.fill(f"{safe(chart.title)}, {safe(chart.where)}", 90)
        figure, grid = panels(len(chart.panels), HIGH * len(rows) + 0.5, title, caption, ACROSS, sharey=True)
        for axes, panel in zip(grid, chart.panels, strict=True):
            handles = _panel(axes, panel, rows, depth)
        _same_scales(grid, chart.panels)
        legend_below(figure, handles, counted("layer", depth), length=1.0)
        figures[name] = figure
    return figures


def _panel(axes: Axes, panel: Panel, rows: list[str], depth: int) -> list[Line2D]:
    """Draw a line of dots for each row; returns what a legend shows of layers."""
    import matplotlib as mpl
    import numpy as np
    from matplotlib.ticker import MaxNLocator

    colours = mpl.colormaps["viridis"](np.linspace(0, LIGHTEST, depth))
    for place, row in enumerate(rows):
        if numbers := panel.lines.get(row):
            axes.plot(numbers.mean, [place] * len(numbers.mean), color="#cccccc", linewidth=1, zorder=1)
            for layer, value in zip(numbers.x, numbers.mean, strict=True):
                axes.plot([value], [place], marker="o", markersize=3.5, color=colours[int(layer) - 1])
    if panel.reference is not None:
        axes.axvline(panel.reference, color="black", linewidth=0.8, linestyle=":")
    one_line_each(axes, rows)
    axes.xaxis.set_major_locator(MaxNLocator(4, integer="rank" in panel.title, min_n_ticks=1))
    axes.tick_params(labelbottom=True)
    of, what = TITLES[panel.scale.y]
    axes.set_title(f"{FORMULAS.get(of, of)}\n{what}", fontsize=8, y=1.0)
    axes.grid(axis="x")
    return [mpl.lines.Line2D([], [], linestyle="", marker="o", markersize=3.5, color=colour) for colour in colours]


def _same_scales(grid: list[Axes], shown: list[Panel]) -> None:
    """Give the panels of one quantity, of W_q^T W_k and of W_proj W_v, one scale."""
    for quantity in {what for of, what in TITLES.values() if of in FORMULAS}:
        its = [axes for axes, panel in zip(grid, shown, strict=True) if TITLES[panel.scale.y][1] == quantity]
        limits = [axes.get_xlim() for axes in its]
        for axes in its:
            axes.set_xlim(min(low for low, _ in limits), max(high for _, high in limits))
