"""Test accuracy over epochs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analysis.figures.registry import FIGURES
from analysis.figures.style import BAND, TOP1, legend, line_with_band, looks, panel_title, panels, safe, span
from analysis.frame import Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D


@FIGURES.add(
    "accuracy",
    "no runs that were evaluated after several epochs",
    caption="Does a row learn faster, does it end higher, or only the one of the two?",
    place=1,
)
def accuracy(study: Study) -> dict[str, Figure]:
    """Test top-1 over epochs: a panel a dataset, a line a row; with two or more seeds a band of one std.

    Datasets on which all runs were evaluated but once are left out.
    """
    from matplotlib.ticker import MaxNLocator

    evaluated = study.epochs.dropna(subset="test_top1")
    several = evaluated.groupby("column")["epoch"].nunique() > 1
    columns = [column for column in study.columns if several.get(column)]
    if not columns:
        return {}
    figure, grid = panels(len(columns), 2.1, f"Test accuracy over epochs: {BAND}")
    handles: dict[str, Line2D] = {}
    curves = dict(list(evaluated.groupby(["row", "column"])))
    for axes, column in zip(grid, columns, strict=True):
        runs = study.runs[study.runs["column"] == column]
        for row, look in looks(study).items():
            if (row, column) in curves:
                handles[row] = line_with_band(axes, curves[row, column].groupby("epoch")["test_top1"], look)
        epochs = span(runs["epochs"])
        n = span(runs.groupby("row").size())
        panel_title(axes, f"{safe(column)}: n={n}, {epochs} epoch{'s' * (epochs != '1')}")
        axes.set(xlabel="epoch", ylabel=TOP1)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid()
    legend(figure, study, handles)
    return {"accuracy": figure}
