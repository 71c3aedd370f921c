"""Gain of each method and of its placebo, the largest gain first."""

from __future__ import annotations

from collections import defaultdict
from statistics import fmean
from typing import TYPE_CHECKING

from vitinit.analysis.figures.registry import FIGURES
from vitinit.analysis.frame import Study
from vitinit.analysis.plotting.gains import (
    compared_to,
    draw_estimate,
    draw_zero,
    one_line_each,
    pairs_of,
    seeds_of,
    table_of,
)
from vitinit.analysis.plotting.style import LineStyle, label_axes, legend_below, panel_title, panels, safe, score_name
from vitinit.analysis.text import capitalised

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

ITSELF = LineStyle("black", "-", "o")
PLACEBO = {
    "spectrum": LineStyle("#D55E00", "-", "s", filled=False),
    "norm": LineStyle("#0072B2", "-", "^", filled=False),
    "entropy": LineStyle("#009E73", "-", "D", filled=False),
    "entries": LineStyle("#CC79A7", "-", "v", filled=False),
}
"""By what it keeps."""
LOWEST = 1.3
"""Inches of a panel with its title and numbers, however few rows it has."""
BELOW = 0.3
"""A placebo is so much of a line below its method, the next one so much below that."""


def placebos(study: Study) -> dict[str, dict[str, str]]:
    """Return the placebo rows of each row, over the same base and model, by the property that they keep."""
    found: dict[str, dict[str, str]] = defaultdict(dict)
    specs = {row: study.examples[row, None] for row in study.rows}
    for row, spec in specs.items():
        for other, its in specs.items():
            if not (spec.method and its.method and its.method.name == "placebo"):
                continue
            of = {"name": spec.method.name, **spec.method.params}
            if its.method.params["of"] == of and (its.base, its.model) == (spec.base, spec.model):
                found[row][its.method.params["keep"]] = other
    return dict(found)


@FIGURES.add(
    "forest",
    "no method with a gain has its placebo beside it",
    caption="A method that gains no more than its placebo is not shown to owe its gain to its pattern.",
    place=4,
    to_baseline=True,
)
def forest(study: Study, baseline: str | None = None) -> dict[str, Figure]:
    """A panel per dataset, a line per row but for placebos, which stand below their method."""
    table, of = table_of(study, baseline), placebos(study)
    pairs = pairs_of(table)
    beside = {name for its in of.values() for name in its.values()}
    gains = {row: [pairs[row, column].mean for column in table.columns if (row, column) in pairs] for row in table.rows}
    rows = sorted((row for row in gains if gains[row] and row not in beside), key=lambda row: -fmean(gains[row]))
    if not any(gains[name] for row in rows for name in of.get(row, {}).values()):
        return {}
    columns = [column for column in table.columns if any(key[1] == column for key in pairs)]
    what = f"{capitalised(score_name(study.runs))} minus that of {compared_to(table)}"
    caption = "by seed: mean with 95 % interval (t), the largest gain first"
    kept = {row: [keep for keep in PLACEBO if keep in of.get(row, {})] for row in rows}
    height = max((0.14 + 0.07 * max(map(len, kept.values()))) * len(rows) + 0.4, LOWEST)
    figure, grid = panels(len(columns), height, what, caption, sharex=True, sharey=True)
    handles: dict[str, Line2D] = {}
    for axes, column in zip(grid, columns, strict=True):
        for place, row in enumerate(rows):
            if (row, column) in pairs:
                pair = pairs[row, column]
                handles["the row itself"] = draw_estimate(axes, pair.mean, place, ITSELF, pair.interval)
            for step, keep in enumerate(kept[row], start=1):
                if (of[row][keep], column) in pairs:
                    pair = pairs[of[row][keep], column]
                    down = place + step * BELOW
                    handles[f"its placebo ({keep})"] = draw_estimate(
                        axes, pair.mean, down, PLACEBO[keep], pair.interval
                    )
        draw_zero(axes)
        one_line_each(axes, rows)
        panel_title(axes, f"{safe(column)}: n={seeds_of(pairs, column)}")
    label_axes(grid, f"difference in {score_name(study.runs)} (points)", "")
    legend_below(figure, list(handles.values()), list(handles))
    return {"forest": figure}
