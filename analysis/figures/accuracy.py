"""Test accuracy over epochs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from vitinit.analysis.figures.registry import FIGURES
from vitinit.analysis.frame import Study
from vitinit.analysis.plotting.style import (
    BAND,
    FEW,
    file_part,
    label_axes,
    legend,
    line_with_band,
    looks,
    not_in,
    panel_title,
    panels,
    safe,
    score_name,
    span,
    title_of_scores,
)
from vitinit.analysis.series import Chart, Line, Panel, Scale
from vitinit.analysis.tables.shared import own_bases
from vitinit.benchmark.records.record import RunRecord

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

MOST = 8
"""Lines in a panel; more rows have a panel each."""


@FIGURES.numbers("accuracy")
def over_epochs(study: Study) -> dict[str, Chart]:
    """A panel per dataset, a line per row. Datasets on which all runs were evaluated but once are left out."""
    by_column: dict[str, dict[str, list[RunRecord]]] = {}
    for (column, row), records in study.cells.items():
        by_column.setdefault(column, {})[row] = records
    panels, scale = [], Scale("epoch", f"{score_name(study.runs)} (%)", "row")
    for column, cells in by_column.items():
        lines = {row: _line(records) for row, records in cells.items()}
        if len({epoch for line in lines.values() for epoch in line.x}) > 1:
            first = next(iter(cells.values()))[0]
            # of mean IoU there is no level that guessing has: it goes by how much is background
            chance = 100 / first.dataset.classes if first.metric == "top1" else None
            panels.append(Panel(column, column, scale, lines, reference=chance))
    dotted = "chance" if any(panel.reference is not None for panel in panels) else ""
    return {"accuracy": Chart(f"{title_of_scores(study)} over epochs", "", panels, reference=dotted)} if panels else {}


def _line(records: list[RunRecord]) -> Line:
    """Over the epochs that any of these runs was evaluated after."""
    import pandas as pd

    scores = pd.DataFrame([record.evaluated for record in records]).sort_index(axis="columns")
    mean, std, n = (each.to_numpy() for each in (scores.mean(), scores.std(), scores.count()))
    return Line(scores.columns.to_numpy(), mean, std, n, least=0.0, most=100.0)


@FIGURES.add(
    "accuracy",
    "no runs that were evaluated after several epochs",
    caption="Does a row learn faster, end higher, or both?",
    place=1,
)
def accuracy(study: Study) -> dict[str, Figure]:
    """Test top-1, or mean IoU, over epochs: a panel per dataset, a line per row; from two seeds on a band of one std.

    More than `MOST` rows have a panel each, beside their base, with all others in grey; then a dataset is a figure.
    """
    chart = over_epochs(study).get("accuracy")
    if not chart:
        return {}
    images = study.runs.groupby("column")["evaluated_images"].min()
    guessing = {panel.column: _guessing(panel, images[panel.column]) for panel in chart.panels}
    shown = [row for row in study.rows if any(row in p.lines and row not in guessing[p.column] for p in chart.panels)]
    if len(shown) > MOST:
        figures: dict[str, Figure] = {}
        for panel in chart.panels:
            name = "accuracy" if len(chart.panels) == 1 else f"accuracy-{file_part([panel.column])}"
            figures[not_in(figures, name)] = _row_by_row(study, chart.title, panel, guessing[panel.column])
        return figures
    known = looks(study)
    own_scales = "; scales differ from panel to panel" if len(chart.panels) > 1 else ""
    caption = BAND + own_scales + _never(study, set().union(*guessing.values()))
    figure, grid = panels(len(chart.panels), 2.1, chart.title, caption)
    handles: dict[str, Line2D] = {}
    for axes, panel in zip(grid, chart.panels, strict=True):
        here = {row: line for row, line in panel.lines.items() if row not in guessing[panel.column]}
        _in_grey(axes, [line for row, line in panel.lines.items() if row not in here])
        handles |= {row: line_with_band(axes, line, known[row], stagger=True) for row, line in here.items()}
        _finish(axes, panel, study)
    legend(figure, study, handles)
    label_axes(grid, "epoch", chart.panels[0].scale.y)
    return {"accuracy": figure}


def _row_by_row(study: Study, title: str, panel: Panel, guessing: set[str]) -> Figure:
    """Draw a panel for each row that learns, in its colour, with its base in black and all others in grey."""
    rows = [row for row in panel.lines if row not in guessing] or list(panel.lines)
    base_of, known = own_bases(study), looks(study)
    caption = f"colour: the row of the title; black: its own base; grey: the other rows; {BAND}"
    caption += _never(study, guessing)
    runs = study.runs[study.runs["column"] == panel.column]
    name = f"{title}, {safe(panel.column)}: n={span(runs.groupby('row').size())}"
    across = 3 if len(rows) <= 9 else 4
    figure, grid = panels(len(rows), 1.15, name, caption, across, sharex=True, sharey=True)
    for axes, row in zip(grid, rows, strict=True):
        _in_grey(axes, list(panel.lines.values()))
        if (base := base_of.get(row)) in panel.lines:
            axes.plot(panel.lines[str(base)].x, panel.lines[str(base)].mean, color="black", linewidth=1)
        line_with_band(axes, panel.lines[row], known[row], stagger=True)
        panel_title(axes, safe(row))
        axes.grid()
    figure.supylabel(panel.scale.y, fontsize=8)
    for axes in grid[-across:]:
        axes.set_xlabel("epoch")
        axes.tick_params(labelbottom=True)
    return figure


def _never(study: Study, guessing: set[str]) -> str:
    """Return a line of a caption on rows that are no better than guessing; empty without such a row."""
    names = [safe(row) for row in study.rows if row in guessing]
    return f"\ngrey: no better than guessing: {', '.join(names)}" if names else ""


def _guessing(panel: Panel, images: int) -> set[str]:
    """Rows that never leave the 95 % interval of what guessing yields on so many test images."""
    if panel.reference is None:
        return set()
    chance = panel.reference
    room = 1.96 * math.sqrt(chance * (100 - chance) / images)
    return {row for row, line in panel.lines.items() if max(abs(line.mean - chance)) <= room}


def _in_grey(axes: Axes, lines: list[Line]) -> None:
    for each in lines:
        axes.plot(each.x, each.mean, color="#bbbbbb", linewidth=0.8, zorder=1)


def _finish(axes: Axes, panel: Panel, study: Study) -> None:
    """Chance, if it is near what is drawn; what the panel is of, and ticks."""
    from matplotlib.ticker import MaxNLocator

    low, high = axes.get_ylim()
    if panel.reference is not None and low - panel.reference < (high - low) / 4:
        axes.axhline(panel.reference, color="black", linewidth=0.8, linestyle=":", zorder=1)
        at = axes.get_yaxis_transform()
        axes.annotate("chance", (1, panel.reference), (0, 1), at, "offset points", ha="right", fontsize=7)
    runs = study.runs[study.runs["column"] == panel.column]
    epochs, n = span(runs["epochs"]), span(runs.groupby("row").size())
    panel_title(axes, f"{safe(panel.column)}: n={n}, {epochs} epoch{'s' * (epochs != '1')}")
    measured_after = sorted({int(epoch) for line in panel.lines.values() for epoch in line.x})
    if len(measured_after) > FEW:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    else:
        axes.set_xticks(measured_after)
    axes.grid()
