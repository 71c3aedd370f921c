"""Test accuracy over epochs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vitinit.analysis.figures.registry import FIGURES
from vitinit.analysis.figures.style import (
    SD,
    file_part,
    finish,
    looks,
    not_in,
    palette,
    present,
    score_name,
    seeds,
    size,
    ticks,
    title_of_scores,
)
from vitinit.analysis.frame import Study
from vitinit.analysis.tables.shared import own_bases

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
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
    data = study.epochs
    epochs = data.groupby("column")["epoch"].nunique()
    data = data[data["column"].isin(epochs[epochs > 1].index)]
    if not len(data):
        return {}
    columns, rows = present(study.columns, data["column"]), present(study.rows, data["row"])
    if len(rows) <= MOST:
        return {"accuracy": _together(study, data, columns, rows)}
    figures: dict[str, FacetGrid] = {}
    for column in columns:
        name = "accuracy" if len(columns) == 1 else not_in(figures, f"accuracy-{file_part(column)}")
        figures[name] = _row_by_row(study, data[data["column"] == column], column)
    return figures


def _together(study: Study, data: pd.DataFrame, columns: list[str], rows: list[str]) -> FacetGrid:
    import seaborn as sns

    grid = sns.relplot(
        data,
        kind="line",
        x="epoch",
        y="score",
        hue="row",
        style="row",
        errorbar="sd",
        col="column",
        col_order=columns,
        facet_kws={"sharex": False, "sharey": False, "legend_out": False},
        **looks(rows, data["epoch"].nunique()),
        **size(len(columns), 2.4),
    )
    for column, axes in grid.axes_dict.items():
        _chance(study, column, axes)
        ticks(grid, data.loc[data["column"] == column, "epoch"], only=axes)
    grid.set_axis_labels("epoch", f"{score_name(study.runs)} (%)")
    titles = {column: f"{column}: {seeds(its, 'row')}" for column, its in data.groupby("column")}
    return finish(grid, f"{title_of_scores(study)} over epochs", SD, titles)


def _chance(study: Study, column: str, axes: Axes) -> None:
    """Draw the score of guessing as a dotted line where it is near; mean IoU has no such level."""
    run = next(runs[0] for (place, _), runs in study.cells.items() if place == column)
    low, high = axes.get_ylim()
    level = 100 / run.dataset.classes
    if run.metric == "top1" and low - (high - low) / 4 < level < high:
        axes.axhline(level, color="black", linewidth=0.8, linestyle=":")
        axes.annotate("chance", (1, level), (0, 2), axes.get_yaxis_transform(), "offset points", ha="right", fontsize=7)


def _row_by_row(study: Study, data: pd.DataFrame, column: str) -> FacetGrid:
    """Draw a panel for each row, with its own base in black and all others in grey."""
    import seaborn as sns

    rows, bases = present(study.rows, data["row"]), own_bases(study)
    across = 3 if len(rows) <= 9 else 5
    grid = sns.relplot(
        data,
        kind="line",
        x="epoch",
        y="score",
        hue="row",
        errorbar="sd",
        palette=palette(rows),
        legend=False,
        col="row",
        col_order=rows,
        linewidth=1.8,
        zorder=3,
        **size(len(rows), 1.5 if across == 3 else 1.25, across),
    )
    means = data.groupby(["row", "epoch"], as_index=False)["score"].mean()
    for row, axes in grid.axes_dict.items():
        for other, its in means.groupby("row"):
            base = other == bases.get(row)
            axes.plot(its["epoch"], its["score"], color="black" if base else "#cccccc", linewidth=0.9, zorder=1 + base)
    for place, axes in enumerate(grid.axes.flat):
        axes.tick_params(labelleft=place % across == 0)
    ticks(grid, data["epoch"])
    grid.set_axis_labels("epoch", f"{score_name(study.runs)} (%)")
    note = f"colour: the row of the title, {SD}; black: its own base; grey: all others"
    return finish(grid, f"{title_of_scores(study)} over epochs, {column}: {seeds(data, 'row')}", note)
