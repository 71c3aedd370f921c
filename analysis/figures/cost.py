"""What a method gains against the cost of initialising."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analysis.figures.gains import NO_PAIRS, compared_to, draw_estimate, draw_zero, pairs_of, seeds_of, table_of
from analysis.figures.registry import FIGURES
from analysis.figures.style import label_axes, legend, looks, measured, panel_title, panels, safe
from analysis.frame import Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

LEAST = 0.1
"""Milliseconds: what initialising took is drawn on a logarithmic scale, which has no 0."""


@FIGURES.add(
    "cost",
    NO_PAIRS,
    caption="Higher up gains more, further right takes longer: is what initialising costs worth what it gains?",
    place=5,
    to_baseline=True,
)
def cost(study: Study, baseline: str | None = None) -> dict[str, Figure]:
    """Milliseconds that initialising took against the tables' differences: a panel a dataset, a point a row."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    from analysis.stats import Interval

    table = table_of(study, baseline)
    pairs = pairs_of(table)
    if not pairs:
        return {}
    milliseconds = (1000 * study.runs["init_seconds"]).clip(lower=LEAST)
    took = dict(list(milliseconds.groupby([study.runs["row"], study.runs["column"]])))
    columns = [column for column in table.columns if any(key[1] == column for key in pairs)]
    title = f"Cost of initialising against gain over {compared_to(table)}: means;\n"
    title += "up: 95 % interval (t) of the gain, across: from the fastest to the slowest seed"
    figure, grid = panels(len(columns), 2.0, title, sharex=True)
    handles: dict[str, Line2D] = {}
    for axes, column in zip(grid, columns, strict=True):
        for row, look in looks(study).items():
            if (row, column) in pairs:
                pair, its = pairs[row, column], took[row, column]
                spread = Interval(its.min(), its.max())
                handles[row] = draw_estimate(axes, its.mean(), pair.mean, look, spread, pair.interval)
        draw_zero(axes.axhline)
        axes.set_xscale("log")
        low, high = axes.get_xlim()
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 50 * low else (1,)))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
        panel_title(axes, f"{safe(column)}: n={seeds_of(pairs, column)}")
        axes.grid()
    label_axes(grid, "initialisation (ms)", f"gain in {measured(study.runs)} (points)")
    legend(figure, study, handles)
    return {"cost": figure}
