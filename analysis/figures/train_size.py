"""Test accuracy over the size of the training split."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analysis.figures.registry import FIGURES
from analysis.figures.style import BAND, TOP1, legend, line_with_band, looks, panel_title, panels, safe, span
from analysis.frame import Study

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D


@FIGURES.add(
    "train_size",
    "no dataset with several train sizes",
    caption="Lines that meet on the right say that an initialisation stands in for data that are not there.",
    place=2,
)
def train_size(study: Study) -> dict[str, Figure]:
    """Test top-1 after the last epoch over the number of training images, where a dataset has several."""
    sizes = several_sizes(study)
    if not sizes:
        return {}
    figure, grid = panels(len(sizes), 2.1, f"Test accuracy over training images: {BAND}")
    handles: dict[str, Line2D] = {}
    for axes, (name, runs) in zip(grid, sizes.items(), strict=True):
        handles |= over_sizes(axes, runs, "top1", study)
        epochs, n = span(runs["epochs"]), span(runs.groupby(["row", "train_images"]).size())
        panel_title(axes, f"{safe(name)}: n={n}, {epochs} epoch{'s' * (epochs != '1')}")
        axes.set_ylabel(TOP1)
    legend(figure, study, handles)
    return {"train_size": figure}


def several_sizes(study: Study) -> dict[str, pd.DataFrame]:
    """Runs of each dataset that has several sizes of the training split, by what their panel is called."""
    runs = study.runs
    # what tells settings apart stands behind the dataset's label
    names = [
        dataset + column.removeprefix(label)
        for dataset, column, label in zip(runs["dataset"], runs["column"], runs["dataset_label"], strict=True)
    ]
    by_name = {str(name): its for name, its in runs.groupby(names, sort=False)}
    return {name: its for name, its in by_name.items() if its["train_images"].nunique() > 1}


def over_sizes(axes: Axes, runs: pd.DataFrame, value: str, study: Study) -> dict[str, Line2D]:
    """Draw a column of `runs` over the number of training images; returns the lines by row label."""
    handles = {}
    for row, look in looks(study).items():
        its = runs[runs["row"] == row]
        if len(its):
            handles[row] = line_with_band(axes, its.groupby("train_images")[value], look, look.marker)
    ticks = sorted(set(runs["train_images"]))
    axes.set_xscale("log")
    axes.set_xticks(ticks, [f"{size:,}" for size in ticks], rotation=30)
    axes.minorticks_off()
    axes.set_xlabel("training images")
    axes.grid()
    return handles
