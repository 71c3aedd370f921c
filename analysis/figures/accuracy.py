"""Test accuracy over epochs."""

from __future__ import annotations

import math
import textwrap
from typing import TYPE_CHECKING

from analysis.figures.registry import FIGURES
from analysis.frame import Study
from analysis.plotting.style import (
    ACROSS,
    BAND,
    CHARACTERS,
    FEW,
    LINE,
    label_axes,
    legend,
    legend_of_panel,
    line_with_band,
    looks,
    measured,
    panel_title,
    panels,
    safe,
    span,
    title_of_scores,
)
from analysis.series import Chart, Line, Panel, Scale
from analysis.tables.shared import own_bases
from benchmark.records.record import RunRecord

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

MOST = 8
"""Lines in a panel; more rows have several panels a dataset."""


@FIGURES.numbers("accuracy")
def over_epochs(study: Study) -> dict[str, Chart]:
    """A panel per dataset, a line per row. Datasets on which all runs were evaluated but once are left out."""
    by_column: dict[str, dict[str, list[RunRecord]]] = {}
    for (column, row), records in study.cells.items():
        by_column.setdefault(column, {})[row] = records
    panels, scale = [], Scale("epoch", f"{measured(study.runs)} (%)", "row")
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

    More than `MOST` rows are shared out among several panels, each with the others in grey.
    """
    chart = over_epochs(study).get("accuracy")
    if not chart:
        return {}
    known, images = looks(study), study.runs.groupby("column")["evaluated_images"].min()
    guessing = {panel.column: _guessing(panel, images[panel.column]) for panel in chart.panels}
    shown = [row for row in study.rows if any(row in p.lines and row not in guessing[p.column] for p in chart.panels)]
    parts = _parts(shown, own_bases(study))
    across = min(max(len(chart.panels), 2), ACROSS) if len(parts) > 1 else None
    title = f"{chart.title}: {BAND}" + "\ngrey: the other rows" * (len(parts) > 1)
    if never := [row for row in study.rows if any(row in rows for rows in guessing.values())]:
        title += "\n" + textwrap.fill(f"grey: no better than guessing: {', '.join(map(safe, never))}", CHARACTERS)
    height = 2.1 + LINE * max(map(len, parts)) * (len(parts) > 1)
    figure, grid = panels(len(chart.panels) * len(parts), height, title, across)
    handles: dict[str, Line2D] = {}
    for axes, (part, panel) in zip(grid, ((part, panel) for part in parts for panel in chart.panels), strict=True):
        here = {row: line for row, line in panel.lines.items() if row in part and row not in guessing[panel.column]}
        others = [line for row, line in panel.lines.items() if row not in here]
        _in_grey(axes, others)
        its = {row: line_with_band(axes, line, known[row], stagger=True) for row, line in here.items()}
        handles |= its
        if len(parts) > 1:
            legend_of_panel(axes, list(its.values()), [safe(row) for row in its])
        _finish(axes, panel, study)
    if len(parts) == 1:
        legend(figure, study, handles)
    label_axes(grid, "epoch", chart.panels[0].scale.y)
    for place in range(len(chart.panels)):
        same = grid[place :: len(chart.panels)]
        limits = [axes.get_ylim() for axes in same]
        for axes in same:
            axes.set_ylim(min(low for low, _ in limits), max(high for _, high in limits))
    return {"accuracy": figure}


def _guessing(panel: Panel, images: int) -> set[str]:
    """Rows that never leave the 95 % interval of what guessing yields on so many test images."""
    if panel.reference is None:
        return set()
    chance = panel.reference
    room = 1.96 * math.sqrt(chance * (100 - chance) / images)
    return {row for row, line in panel.lines.items() if max(abs(line.mean - chance)) <= room}


def _parts(rows: list[str], base_of: dict[str, str]) -> list[list[str]]:
    """Rows that are drawn in colour together: at most `MOST`, each beside its own base."""
    if len(rows) <= MOST:
        return [rows]
    families: dict[str | None, list[str]] = {}
    for row in rows:
        families.setdefault(base_of.get(row, row if row in base_of.values() else None), []).append(row)
    parts = []
    for base, family in families.items():
        first = [row for row in family if row == base]
        others = [row for row in family if row != base]
        count = -(-len(others) // (MOST - len(first))) or 1
        parts += [first + others[len(others) * i // count : len(others) * (i + 1) // count] for i in range(count)]
    return parts


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
