"""What a method gains: differences by seed, the mean across datasets, gain against the cost of initialising."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from analysis import stats
from analysis.figures.style import legend, looks, panels, safe, span
from analysis.frame import Study

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    from analysis.figures.style import Look
    from analysis.stats import Interval, Paired

LEAST_SECONDS = 1e-4
"""What initialising took is drawn on a logarithmic scale, which has no 0."""


def differences(study: Study, baseline: str) -> dict[str, Figure]:
    """A forest plot of the differences to the baseline: a panel a dataset, a line a row, a faint point a seed."""
    pairs = _paired(study, baseline)
    columns = [column for column in study.columns if any(key[1] == column for key in pairs)]
    if not columns:
        return {}
    rows = [row for row in study.rows if row != baseline and any(key[0] == row for key in pairs)]
    title = f"Test top-1 minus that of {safe(baseline)}, by seed: mean with 95 % interval (t); ticks: seeds"
    figure, grid = panels(len(columns), 0.2 * len(rows) + 0.5, title, sharey=True)
    values = _by_cell(study)
    for axes, column in zip(grid, columns, strict=True):
        for place, row in enumerate(rows):
            if (row, column) not in pairs:
                continue
            look, pair = looks(study)[row], pairs[row, column]
            seeds = stats.differences(values[row, column], values[baseline, column])
            axes.plot(seeds, [place] * len(seeds), linestyle="", marker="|", markersize=5, color=look.color, alpha=0.5)
            _estimate(axes, pair.mean, place, pair.interval, look, "x")
        _zero(axes.axvline)
        axes.set_yticks(range(len(rows)), [safe(row) for row in rows])
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.set_title(f"{safe(column)}: n={_seeds(pairs, column)}")
        axes.grid(axis="x")
        axes.tick_params(axis="y", length=0)
    figure.supxlabel("difference in test top-1 (points)", fontsize=8)
    return {"differences": figure}


def across_datasets(study: Study) -> dict[str, Figure]:
    """Interquartile mean over the runs of all datasets, with intervals; of the rows that have runs on every dataset."""
    import numpy as np

    columns = [column for column in study.columns if column in set(study.runs["column"])]
    values = _by_cell(study)
    rows = [row for row in study.rows if all((row, column) in values for column in columns)]
    if len(columns) < 2 or not rows:
        return {}
    runs = span(sum(len(values[row, column]) for column in columns) for row in rows)
    title = (
        f"Interquartile mean over {len(columns)} datasets, {runs} runs a row, with 95 % stratified bootstrap interval"
    )
    figure, (axes,) = panels(1, 0.2 * len(rows) + 0.4, title)
    for place, row in enumerate(rows):
        estimate = stats.aggregate_iqm([np.asarray(values[row, column], dtype=float) for column in columns])
        _estimate(axes, estimate.value, place, estimate.interval, looks(study)[row], "x")
    axes.set_yticks(range(len(rows)), [safe(row) for row in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("test top-1 (%)")
    axes.grid(axis="x")
    return {"across_datasets": figure}


def cost(study: Study, baseline: str) -> dict[str, Figure]:
    """Seconds that initialising took against the gain over the baseline: a panel a dataset, a point a row."""
    pairs = _paired(study, baseline)
    columns = [column for column in study.columns if any(key[1] == column for key in pairs)]
    if not columns:
        return {}
    seconds = study.runs.groupby(["row", "column"])["init_seconds"].mean().clip(lower=LEAST_SECONDS)
    figure, grid = panels(len(columns), 2.0, f"Cost of initialising against gain over {safe(baseline)}", sharex=True)
    handles: dict[str, Line2D] = {}
    for axes, column in zip(grid, columns, strict=True):
        for row, look in looks(study).items():
            if (row, column) in pairs:
                pair = pairs[row, column]
                handles[row] = _estimate(axes, seconds[row, column], pair.mean, pair.interval, look, "y")
        _zero(axes.axhline)
        axes.set_xscale("log")
        axes.set_title(f"{safe(column)}: n={_seeds(pairs, column)}")
        axes.set(xlabel="initialisation (s)", ylabel="gain in test top-1 (points)")
        axes.grid()
    legend(figure, study, handles)
    return {"cost": figure}


def _by_cell(study: Study) -> dict[tuple[str, str], pd.Series[float]]:
    """Top-1 after the last epoch by seed, of each row and column."""
    groups: Any = study.runs.groupby(["row", "column"])
    return {key: group.set_index("seed")["top1"] for key, group in groups}


def _paired(study: Study, baseline: str) -> dict[tuple[str, str], Paired]:
    """Differences to the baseline, of each other row and column that has a seed in common with it."""
    values = _by_cell(study)
    found = {
        (row, column): stats.paired(top1, values[baseline, column])
        for (row, column), top1 in values.items()
        if row != baseline and (baseline, column) in values
    }
    return {key: pair for key, pair in found.items() if pair}


def _seeds(pairs: dict[tuple[str, str], Paired], column: str) -> str:
    """How many pairs the differences on a dataset are the mean over."""
    return span(pair.n for (_, its), pair in pairs.items() if its == column)


def _estimate(axes: Axes, x: float, y: float, interval: Interval | None, look: Look, along: str) -> Line2D:
    """A marker with its interval, if there is one, along x or y; returns what a legend shows."""
    (point,) = axes.plot([x], [y], linestyle="", markersize=4.5, **look.point)
    if interval:
        ends = (interval.low, interval.high)
        axes.plot(*((ends, (y, y)) if along == "x" else ((x, x), ends)), color=look.color)
    return point


def _zero(line: Callable[..., object]) -> None:
    """No difference."""
    line(0, color="black", linewidth=0.8, zorder=1)
