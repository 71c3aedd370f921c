"""Test accuracy over the size of the training split."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from vitinit.analysis.figures.registry import FIGURES
from vitinit.analysis.frame import Study
from vitinit.analysis.plotting.style import (
    BAND,
    legend,
    line_with_band,
    looks,
    panel_title,
    panels,
    safe,
    score_name,
    span,
    title_of_scores,
)
from vitinit.analysis.series import Chart, Panel, Scale, line

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D


@FIGURES.numbers("train_size")
def over_train_size(study: Study) -> dict[str, Chart]:
    """A panel per dataset that has several sizes, a line per row."""
    panels = [
        sizes_panel(name, runs, "score", f"{score_name(runs)} (%)", study)
        for name, runs in several_sizes(study).items()
    ]
    return {"train_size": Chart(f"{title_of_scores(study)} over training images", "", panels)} if panels else {}


@FIGURES.add(
    "train_size",
    "no dataset with several train sizes",
    caption="Where lines meet on the right, more images make the difference vanish.",
    place=2,
)
def train_size(study: Study) -> dict[str, Figure]:
    """Test top-1, or mean IoU, after the last epoch over the number of training images, where a dataset has several."""
    chart = over_train_size(study).get("train_size")
    if not chart:
        return {}
    figure, grid = panels(len(chart.panels), 2.1, chart.title, BAND)
    handles: dict[str, Line2D] = {}
    for axes, panel, (name, runs) in zip(grid, chart.panels, several_sizes(study).items(), strict=True):
        handles |= over_sizes(axes, panel, study)
        epochs, n = span(runs["epochs"]), span(runs.groupby(["row", "train_images"]).size())
        panel_title(axes, f"{safe(name)}: n={n}, {epochs} epoch{'s' * (epochs != '1')}")
        axes.set_ylabel(panel.scale.y)
    legend(figure, study, handles)
    return {"train_size": figure}


def several_sizes(study: Study) -> dict[str, pd.DataFrame]:
    """Runs of each dataset that has several sizes of the training split, by what their panel is called."""
    runs = study.runs
    names = []
    for run_id, column, label in zip(runs["run_id"], runs["column"], runs["dataset_label"], strict=True):
        dataset = study.contents.done[run_id].spec.dataset
        # what tells settings apart stands behind the dataset's label
        names.append(dataset.model_copy(update={"train_size": None}).label + column.removeprefix(label))
    by_name = {str(name): its for name, its in runs.groupby(names, sort=False)}
    return {name: its for name, its in by_name.items() if its["train_images"].nunique() > 1}


def sizes_panel(name: str, runs: pd.DataFrame, value: str, y: str, study: Study) -> Panel:
    """A column of `runs`, which the y-axis calls `y`, over the number of training images."""
    by_row = {row: runs[runs["row"] == row] for row in study.rows}
    within = (0.0, 100.0) if value == "score" else (-math.inf, math.inf)  # a gain in percent may be a loss
    lines = {row: line(its.groupby("train_images")[value], *within) for row, its in by_row.items() if len(its)}
    return Panel(name, "", Scale("training images", y, "row", log_x=True), lines)


def over_sizes(axes: Axes, panel: Panel, study: Study) -> dict[str, Line2D]:
    """Draw lines over the number of training images; returns them by row label."""
    handles, known = {}, looks(study)
    for row, numbers in panel.lines.items():
        handles[row] = line_with_band(axes, numbers, known[row])
    ticks = sorted({int(size) for numbers in panel.lines.values() for size in numbers.x})
    axes.set_xscale("log")
    axes.set_xticks(ticks, [f"{size:,}" for size in ticks], rotation=30)
    axes.minorticks_off()
    axes.set_xlabel("training images")
    axes.grid()
    return handles
