"""Scores over epochs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vitinit.analysis.figures.registry import FIGURES
from vitinit.analysis.figures.style import SD, file_part, finish, looks, panels, present, score_name, ticks, with_seeds
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
    place=1,
)
def accuracy(study: Study) -> dict[str, FacetGrid]:
    """Draw the score over epochs: a panel per dataset and a line per row, or a panel per row where there are many."""
    import seaborn as sns

    data = study.epochs[study.epochs.groupby("column")["epoch"].transform("nunique") > 1]
    columns, rows = present(study.columns, data["column"]), present(study.rows, data["row"])
    many = len(rows) > MOST
    figures = {}
    for column in columns if many else columns[:1]:
        its = data[data["column"] == column] if many else data
        facets, order = ("row", present(rows, its["row"])) if many else ("column", columns)
        grid = sns.relplot(
            its.reset_index(drop=True),
            x="epoch",
            y="score",
            hue="row",
            style="row",
            errorbar="sd",
            legend=not many,
            col=facets,
            col_order=order,
            facet_kws={"sharey": many, "legend_out": False},
            zorder=3,
            **looks(rows),
            **(panels(len(order), 1.5, 5) if many else panels(len(order), 2.3)),
        )
        note = SD
        if many:
            note = f"colour: the row of the title, {SD}; black: its own base; grey: all others"
            means = its.groupby(["row", "epoch"])["score"].mean().unstack(0)
            for row, axes in grid.axes_dict.items():
                axes.plot(means, color="#cccccc", linewidth=0.7, zorder=1)
                if base := own_bases(study).get(row):
                    axes.plot(means[base], color="black", linewidth=0.9, zorder=2)
        ticks(grid, its["epoch"])
        grid.set_axis_labels("epoch", f"{score_name(study.runs)} (%)")
        titles = with_seeds(its, "row")
        title = f"{capitalised(score_name(study.runs))} over epochs" + (f", {titles[column]}" if many else "")
        name = "accuracy" if len(columns) == 1 or not many else f"accuracy-{file_part(column)}"
        figures[name] = finish(grid, title, note, titles)
    return figures
