"""Scores over epochs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vitinit.analysis.figures.registry import FIGURES
from vitinit.analysis.figures.style import SD, file_part, finish, lines, score_name, with_seeds
from vitinit.analysis.frame import Study
from vitinit.analysis.tables.shared import own_bases
from vitinit.analysis.text import capitalised

if TYPE_CHECKING:
    from seaborn import FacetGrid

MOST = 8
"""Lines in a panel; more rows have a panel each."""


@FIGURES.add(
    "accuracy",
    "no runs that were evaluated after several epochs",
    caption="Does a row learn faster, end higher, or both?",
)
def accuracy(study: Study) -> dict[str, FacetGrid]:
    """Draw the score over epochs: a panel per dataset and a line per row, or a panel per row where there are many."""
    data, score = study.epochs[study.epochs.groupby("column")["epoch"].transform("nunique") > 1], score_name(study.runs)
    how: dict[str, Any] = {"rows": study.rows, "names": ("epoch", f"{score} (%)"), "zorder": 3}
    title, figures = f"{capitalised(score)} over epochs", {}
    if len(data) and data["row"].nunique() <= MOST:
        grid = lines(data, "epoch", "score", "column", height=2.3, sharey=False, **how)
        return {"accuracy": finish(grid, title, SD, with_seeds(data, "row"))}
    for column, its in data.groupby("column", sort=False):
        grid = lines(its, "epoch", "score", "row", height=1.5, across=5, legend=False, **how)
        means = its.groupby(["row", "epoch"])["score"].mean().unstack(0)
        for row, axes in grid.axes_dict.items():
            axes.plot(means, color="#cccccc", linewidth=0.7, zorder=1)
            if (base := own_bases(study).get(row)) in means:
                axes.plot(means[base], color="black", linewidth=0.9, zorder=2)
        titles = with_seeds(its, "row")
        note = f"colour: the row of the title, {SD}; black: its own base; grey: all others"
        name = "accuracy" if data["column"].nunique() == 1 else f"accuracy-{file_part(str(column))}"
        figures[name] = finish(grid, f"{title}, {titles[str(column)]}", note)
    return figures
