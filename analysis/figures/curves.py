"""Test accuracy over epochs, and over the size of the training split."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from analysis.figures.style import legend, looks, panels, safe, span
from analysis.frame import Study

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    from analysis.figures.style import Look

TOP1 = "test top-1 (%)"
BAND = "mean over seeds, band ± one standard deviation"


def accuracy(study: Study) -> dict[str, Figure]:
    """Test top-1 over epochs: a panel a dataset, a line a row; with two or more seeds a band of one std."""
    from matplotlib.ticker import MaxNLocator

    columns = [column for column in study.columns if column in set(study.runs["column"])]
    figure, grid = panels(len(columns), 2.1, f"Test accuracy over epochs: {BAND}")
    handles: dict[str, Line2D] = {}
    curves = dict(list(study.epochs.groupby(["row", "column"])))
    for axes, column in zip(grid, columns, strict=True):
        runs = study.runs[study.runs["column"] == column]
        for row, look in looks(study).items():
            if (row, column) in curves:
                handles[row] = _line(axes, curves[row, column].groupby("epoch")["test_top1"], look)
        epochs = span(runs["epochs"])
        axes.set_title(f"{safe(column)}: n={span(runs.groupby('row').size())}, {epochs} epoch{'s' * (epochs != '1')}")
        axes.set(xlabel="epoch", ylabel=TOP1)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid()
    legend(figure, study, handles)
    return {"accuracy": figure}


def train_size(study: Study) -> dict[str, Figure]:
    """Test top-1 after the last epoch over the number of training images, where a dataset has several."""
    runs = study.runs.copy()
    # what tells settings apart stands behind the dataset's label
    runs["panel"] = [
        dataset + column.removeprefix(label)
        for dataset, column, label in zip(runs["dataset"], runs["column"], runs["dataset_label"], strict=True)
    ]
    sizes = runs.groupby("panel", sort=False)["train_images"].nunique()
    names = list(sizes[sizes > 1].index)
    if not names:
        return {}
    figure, grid = panels(len(names), 2.1, f"Test accuracy over training images: {BAND}")
    handles: dict[str, Line2D] = {}
    for axes, name in zip(grid, names, strict=True):
        here = runs[runs["panel"] == name]
        for row, look in looks(study).items():
            its = here[here["row"] == row]
            if len(its):
                handles[row] = _line(axes, its.groupby("train_images")["top1"], look, look.marker)
        ticks = sorted(set(here["train_images"]))
        axes.set_xscale("log")
        axes.set_xticks(ticks, [f"{size:,}" for size in ticks], rotation=30)
        axes.minorticks_off()
        epochs, n = span(here["epochs"]), span(here.groupby(["row", "train_images"]).size())
        axes.set_title(f"{safe(name)}: n={n}, {epochs} epoch{'s' * (epochs != '1')}")
        axes.set(xlabel="training images", ylabel=TOP1)
        axes.grid()
    legend(figure, study, handles)
    return {"train_size": figure}


def _line(axes: Axes, groups: Any, look: Look, marker: str | None = None) -> Line2D:
    """Mean and band of values grouped by x; returns what a legend shows."""
    stats = groups.agg(["mean", "std"])
    # The standard deviation of one seed is NaN, which draws no band; a line through one point needs a marker.
    marker = marker or (look.marker if len(stats) == 1 else None)
    (line,) = axes.plot(stats.index, stats["mean"], marker=marker, markersize=3.5, **look.line)
    low, high = stats["mean"] - stats["std"], stats["mean"] + stats["std"]
    axes.fill_between(stats.index, low, high, color=look.color, alpha=0.2, linewidth=0)
    return line
