"""State at the start of training, layer by layer: the table `_start` as lines."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from vitinit.analysis.figures.registry import FIGURES
from vitinit.analysis.figures.style import file_part, finish, looks, panels, present, t_interval, ticks
from vitinit.analysis.frame import Study, mean_distance
from vitinit.analysis.tables.start import has_start, starts

if TYPE_CHECKING:
    from seaborn import FacetGrid

UNIFORM = {"entropy": lambda side: math.log(side**2), "distance": mean_distance}
"""Values for uniform attention between all tokens of a grid, by its side."""
TITLES = {
    **{"QK norm": "W_q^T W_k: norm", "QK rank": "W_q^T W_k: rank", "QK cond.": "W_q^T W_k: log10 condition"},
    "entropy": "attention: entropy (nats)",
    **{"VO norm": "W_proj W_v: norm", "VO rank": "W_proj W_v: rank", "VO cond.": "W_proj W_v: log10 condition"},
    "distance": "attention: distance (tokens)",
}
"""Titles of panels, in their order."""


@FIGURES.add(
    "start",
    "no record holds the start of its run",
    caption="Rows that start alike in all panels differ by a pattern that none of these numbers tells.",
    place=11,
)
def start(study: Study) -> dict[str, FacetGrid]:
    """Draw a panel per quantity, a line per row over its layers: a figure per dataset."""
    import seaborn as sns

    if not has_start(study):
        return {}
    figures = {}
    for place, data in starts(study).groupby("column"):
        quantities = present(TITLES, data["quantity"])
        grid = sns.relplot(
            data.reset_index(drop=True),
            x="layer",
            y="value",
            hue="row",
            style="row",
            errorbar=t_interval,
            err_style="bars",
            col="quantity",
            col_order=quantities,
            facet_kws={"sharey": False, "legend_out": False},
            **looks(present(study.rows, data["row"])),
            **panels(len(quantities), 1.6, 4),
        )
        sides = {study.contents.done[run_id].spec.model.attention_side for run_id in data["run_id"]}
        side = sides.pop() if len(sides) == 1 else None
        for quantity, axes in grid.axes_dict.items():
            if quantity in UNIFORM and side:
                axes.axhline(UNIFORM[quantity](side), color="black", linewidth=0.8, linestyle=":")
        ticks(grid, data["layer"])
        grid.set_axis_labels("layer", "")
        note = "means over heads and seeds with 95 % interval (t); dotted: uniform attention"
        figures[f"start-{file_part(str(place))}"] = finish(grid, f"At the start of training, {place}", note, TITLES)
    return figures
