"""Gain of each method beside its cost of initialising."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vitinit.analysis.figures.registry import FIGURES
from vitinit.analysis.frame import Study
from vitinit.analysis.plotting.gains import (
    NO_PAIRS,
    compared_to,
    draw_estimate,
    draw_zero,
    one_line_each,
    pairs_of,
    seeds_of,
    table_of,
)
from vitinit.analysis.plotting.style import looks, panel_title, panels, safe, score_name, span

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LEAST = 0.1
"""Milliseconds: what initialising took is drawn on a logarithmic scale, which has no 0."""


@FIGURES.add(
    "cost",
    NO_PAIRS,
    caption="On the left what initialising takes, on the right what it gains: is the one worth the other?",
    place=5,
    to_baseline=True,
)
def cost(study: Study, baseline: str | None = None) -> dict[str, Figure]:
    """Milliseconds that initialising took beside the tables' differences: two panels per dataset, a line per row."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    from vitinit.analysis.stats import Interval

    table = table_of(study, baseline)
    pairs = pairs_of(table)
    if not pairs:
        return {}
    milliseconds = (1000 * study.runs["init_seconds"]).clip(lower=LEAST)
    took = dict(list(milliseconds.groupby([study.runs["row"], study.runs["column"]])))
    columns = [column for column in table.columns if any(key[1] == column for key in pairs)]
    rows = [row for row in table.rows if any(key[0] == row for key in pairs)]
    title = f"Cost of initialising, and gain over {compared_to(table)}"
    caption = "means; left: from the fastest to the slowest seed, right: 95 % interval (t)"
    high = 0.16 * len(rows) + 0.8
    figure, grid = panels(2 * len(columns), high, title, caption, across=2, sharex="col", sharey=True)
    known = looks(study)
    for cheap, good, column in zip(grid[::2], grid[1::2], columns, strict=True):
        for place, row in enumerate(rows):
            if (row, column) in pairs:
                look, pair, its = known[row], pairs[row, column], took[row, column]
                draw_estimate(cheap, its.mean(), place, look, Interval(its.min(), its.max()))
                draw_estimate(good, pair.mean, place, look, pair.interval)
        draw_zero(good)
        cheap.set_xscale("log")
        runs = span(len(took[row, column]) for row in rows if (row, column) in pairs)
        for axes, label, n in (
            (cheap, "initialisation (ms, log scale)", runs),
            (good, f"gain in {score_name(study.runs)} (points)", seeds_of(pairs, column)),
        ):
            axes.set_xlabel(label)
            axes.tick_params(labelbottom=True)
            one_line_each(axes, rows)
            panel_title(axes, f"{safe(column)}: n={n}")
    low, high = grid[0].get_xlim()
    for cheap in grid[::2]:
        cheap.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 50 * low else (1,)))
        cheap.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
        cheap.xaxis.set_minor_formatter(NullFormatter())
    return {"cost": figure}
