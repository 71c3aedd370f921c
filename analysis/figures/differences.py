"""Gain of each method: differences by seed."""

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
from vitinit.analysis.plotting.style import (
    base_handles,
    label_axes,
    legend_below,
    looks,
    panel_title,
    panels,
    safe,
    score_name,
)
from vitinit.analysis.tables.contrasts import label
from vitinit.analysis.tables.registry import build
from vitinit.analysis.tables.shared import contrasts_compared, values_by_seed
from vitinit.analysis.text import capitalised

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BELOW = 0.3
"""Dots are so much of a line below their mean."""


@FIGURES.add(
    "differences",
    NO_PAIRS,
    caption="An interval without 0 is a difference that these seeds show; of many intervals some exclude 0 by chance.",
    place=3,
    to_baseline=True,
)
def differences(study: Study, baseline: str | None = None) -> dict[str, Figure]:
    """Forest plots of the tables' differences: a panel per dataset, a line per row, a dot per seed.

    Where the grid names comparisons, and no others are asked for, these are drawn.
    """
    from vitinit.analysis import stats

    values = values_by_seed(study, "last")
    named = baseline is None and contrasts_compared(study)
    table = build(study, f"{study.name}_contrasts") if named else table_of(study, baseline)
    firsts = {label(pair): pair[0] for pair in study.contrasts if named}
    pairs = pairs_of(table)
    if not pairs:
        return {}
    columns = [column for column in table.columns if any(key[1] == column for key in pairs)]
    rows = [row for row in table.rows if any(key[0] == row for key in pairs)]
    what = f"{capitalised(score_name(study.runs))} minus that of {'the second row' if named else compared_to(table)}"
    caption = "by seed: mean with 95 % interval (t); dots: seeds"
    figure, grid = panels(len(columns), 0.2 * len(rows) + 0.5, what, caption, sharex=True, sharey=True)
    known = looks(study)
    for axes, column in zip(grid, columns, strict=True):
        for place, row in enumerate(rows):
            if (row, column) in pairs:
                first = firsts.get(row, row)
                look, pair = known[first], pairs[row, column]
                seeds = stats.differences(values[first, column], values[table.baselines[row], column])
                places = [place + BELOW] * len(seeds)
                axes.plot(seeds, places, linestyle="", marker=".", markersize=3, color=look.color, alpha=0.7)
                draw_estimate(axes, pair.mean, place, look, pair.interval)
        draw_zero(axes)
        axes.tick_params(labelbottom=True)
        one_line_each(axes, rows)
        panel_title(axes, f"{safe(column)}: n={seeds_of(pairs, column)}")
    bases = base_handles(study, [firsts.get(row, row) for row in rows])
    if bases:
        legend_below(figure, list(bases.values()), [f"base {safe(name)}" for name in bases])
    label_axes(grid, f"difference in {score_name(study.runs)} (points)", "")
    return {"differences": figure}
