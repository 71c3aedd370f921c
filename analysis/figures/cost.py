"""What a method gains against the cost of initialising."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analysis.figures.gains import NO_PAIRS, compared_to, draw_estimate, draw_zero, pairs_of, seeds_of
from analysis.figures.registry import FIGURES
from analysis.figures.style import legend, looks, panel_title, panels, safe
from analysis.frame import Study
from analysis.tables.registry import build

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

LEAST_SECONDS = 1e-4
"""What initialising took is drawn on a logarithmic scale, which has no 0."""


@FIGURES.add(
    "cost",
    NO_PAIRS,
    caption="Higher up gains more, further right takes longer: is what initialising costs worth what it gains?",
    place=5,
    to_baseline=True,
)
def cost(study: Study, baseline: str | None = None) -> dict[str, Figure]:
    """Seconds that initialising took against the tables' differences: a panel a dataset, a point a row."""
    seconds = study.runs.groupby(["row", "column"])["init_seconds"].mean().clip(lower=LEAST_SECONDS)
    table = build(study, baseline=baseline)
    pairs = pairs_of(table)
    if not pairs:
        return {}
    columns = [column for column in table.columns if any(key[1] == column for key in pairs)]
    title = f"Cost of initialising against gain over {compared_to(table)}: mean with 95 % interval (t)"
    figure, grid = panels(len(columns), 2.0, title, sharex=True)
    handles: dict[str, Line2D] = {}
    for axes, column in zip(grid, columns, strict=True):
        for row, look in looks(study).items():
            if (row, column) in pairs:
                pair = pairs[row, column]
                handles[row] = draw_estimate(axes, seconds[row, column], pair.mean, pair.interval, look, "y")
        draw_zero(axes.axhline)
        axes.set_xscale("log")
        panel_title(axes, f"{safe(column)}: n={seeds_of(pairs, column)}")
        axes.set(xlabel="initialisation (s)", ylabel="gain in test top-1 (points)")
        axes.grid()
    legend(figure, study, handles)
    return {"cost": figure}
