"""Scores over epochs."""

import numpy as np

from vitinit.analysis.figures.registry import FIGURES
from vitinit.analysis.figures.style import SD, Panels, file_part, finish, lines, palette, present, with_seeds
from vitinit.analysis.frame import Study
from vitinit.analysis.rows import own_bases

MOST = 8
"""Lines in a panel; more rows have a panel each."""


@FIGURES.add(
    "accuracy",
    "no runs that were evaluated after several epochs",
    caption="Does a row learn faster, end higher, or both?",
)
def accuracy(study: Study) -> dict[str, Panels]:
    """Draw the score over epochs: a panel per dataset and a line per row, or a panel per row where there are many."""
    data = study.epochs[study.epochs.groupby("column")["epoch"].transform("nunique") > 1]
    rows = present(study.rows, data["row"])
    y, colours, bases, figures = f"{study.score} (%)", palette(rows), own_bases(study), {}
    title = f"{study.score[:1].upper()}{study.score[1:]} over epochs"
    if len(data) and len(rows) <= MOST:
        grid = lines(data, "epoch", "score", "column", colours, 2.3, bounds=(0, 100), y=y, sharey=False)
        return {"accuracy": finish(study, grid, title, SD, with_seeds(data, "row"))}
    for column, runs in data.groupby("column", sort=False):
        grid = lines(runs, "epoch", "score", "row", colours, 1.5, 5, bounds=(0, 100), y=y)
        means = {str(row): line.groupby("epoch")["score"].mean() for row, line in runs.groupby("row")}
        others = np.concatenate([[*line.items(), (np.nan, np.nan)] for line in means.values()])  # one line with gaps
        for row, axes in grid.axes.items():
            axes.plot(*others.T, color="#cccccc", linewidth=0.7, zorder=1)
            if (base := bases.get(row)) in means:
                axes.plot(means[base], color="black", linewidth=0.9, zorder=2)
        titles = with_seeds(runs, "row")
        note = f"colour: the row of the title, {SD}; black: its own base; grey: all others"
        name = "accuracy" if data["column"].nunique() == 1 else f"accuracy-{file_part(str(column))}"
        figures[name] = finish(study, grid, f"{title}, {titles[str(column)]}", note)
    return figures
