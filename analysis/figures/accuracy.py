"""Test accuracy over epochs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analysis.figures.registry import FIGURES
from analysis.figures.style import BAND, TOP1, legend, line_with_band, looks, panel_title, panels, safe, span
from analysis.frame import Study
from analysis.series import Chart, Panel, Scale, line

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D


@FIGURES.numbers("accuracy")
def over_epochs(study: Study) -> dict[str, Chart]:
    """A panel a dataset, a line a row. Datasets on which all runs were evaluated but once are left out."""
    evaluated = study.epochs.dropna(subset="test_top1")
    several = evaluated.groupby("column")["epoch"].nunique() > 1
    columns = [column for column in study.columns if several.get(column)]
    curves = dict(list(evaluated.groupby(["row", "column"])))
    panels, scale = [], Scale("epoch", TOP1, "row")
    for column in columns:
        lines = {
            row: line(curves[row, column].groupby("epoch")["test_top1"])
            for row in study.rows
            if (row, column) in curves
        }
        panels.append(Panel(column, column, scale, lines))
    return {"accuracy": Chart("Test accuracy over epochs", "", panels)} if panels else {}


@FIGURES.add(
    "accuracy",
    "no runs that were evaluated after several epochs",
    caption="Does a row learn faster, does it end higher, or only the one of the two?",
    place=1,
)
def accuracy(study: Study) -> dict[str, Figure]:
    """Test top-1 over epochs: a panel a dataset, a line a row; with two or more seeds a band of one std."""
    from matplotlib.ticker import MaxNLocator

    chart = over_epochs(study).get("accuracy")
    if not chart:
        return {}
    figure, grid = panels(len(chart.panels), 2.1, f"{chart.title}: {BAND}")
    handles: dict[str, Line2D] = {}
    for axes, panel in zip(grid, chart.panels, strict=True):
        column = panel.column
        runs = study.runs[study.runs["column"] == column]
        for row, numbers in panel.lines.items():
            handles[row] = line_with_band(axes, numbers, looks(study)[row])
        epochs = span(runs["epochs"])
        n = span(runs.groupby("row").size())
        panel_title(axes, f"{safe(column)}: n={n}, {epochs} epoch{'s' * (epochs != '1')}")
        axes.set(xlabel="epoch", ylabel=TOP1)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid()
    legend(figure, study, handles)
    return {"accuracy": figure}
