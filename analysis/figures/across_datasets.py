"""The mean over several datasets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analysis.figures.gains import draw_estimate, one_line_each
from analysis.figures.registry import FIGURES
from analysis.figures.style import looks, panels
from analysis.frame import Study
from analysis.tables.registry import build

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@FIGURES.add("across_datasets", "no two rows with three seeds on each of two or more datasets", place=4)
def across_datasets(study: Study) -> dict[str, Figure]:
    """Interquartile mean over the runs of several datasets, as the table of the study has it."""
    table = build(study, together=True)
    rows = [row for row in table.rows if row in table.across]
    if len(rows) < 2:
        return {}
    title = f"Interquartile mean over {len(table.together)} datasets with 95 % interval (stratified bootstrap)"
    figure, (axes,) = panels(1, 0.2 * len(rows) + 0.4, title)
    for place, row in enumerate(rows):
        estimate = table.across[row].iqm
        draw_estimate(axes, estimate.value, place, estimate.interval, looks(study)[row], "x")
    one_line_each(axes, rows)
    axes.set_xlabel("test top-1 (%)")
    return {"across_datasets": figure}
