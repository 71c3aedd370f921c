"""What a method gains: differences by seed, the mean across datasets, gain against the cost of initialising."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from analysis.figures.style import legend, looks, panel_title, panels, safe, span
from analysis.frame import Study
from analysis.tables.build import Table, build

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    from analysis.figures.style import Look
    from analysis.stats import Interval, Paired

LEAST_SECONDS = 1e-4
"""What initialising took is drawn on a logarithmic scale, which has no 0."""


def differences(study: Study, baseline: str | None = None) -> dict[str, Figure]:
    """Forest plots of the tables' differences: a panel a dataset, a line a row, a tick a seed."""
    from analysis import stats

    groups = study.runs.groupby(["row", "column"])
    values = {key: group.set_index("seed")["top1"] for key, group in groups}
    table = build(study, baseline=baseline)
    pairs = _pairs(table)
    if not pairs:
        return {}
    columns = [column for column in table.columns if any(key[1] == column for key in pairs)]
    rows = [row for row in table.rows if any(key[0] == row for key in pairs)]
    title = f"Test top-1 minus that of {_baseline(table)}, by seed: mean with 95 % interval (t); ticks: seeds"
    figure, grid = panels(len(columns), 0.2 * len(rows) + 0.5, title, sharey=True)
    for axes, column in zip(grid, columns, strict=True):
        for place, row in enumerate(rows):
            if (row, column) in pairs:
                look, pair = looks(study)[row], pairs[row, column]
                seeds = stats.differences(values[row, column], values[table.baselines[row], column])
                places = [place] * len(seeds)
                axes.plot(seeds, places, linestyle="", marker="|", markersize=5, color=look.color, alpha=0.5)
                _estimate(axes, pair.mean, place, pair.interval, look, "x")
        _zero(axes.axvline)
        _one_line_each(axes, rows)
        panel_title(axes, f"{safe(column)}: n={_seeds(pairs, column)}")
    figure.supxlabel("difference in test top-1 (points)", fontsize=8)
    return {"differences": figure}


def across_datasets(study: Study) -> dict[str, Figure]:
    """Interquartile mean over the runs of several datasets, as the table of the study has it."""
    table = build(study)
    rows = [row for row in table.rows if row in table.across]
    if len(rows) < 2:
        return {}
    title = f"Interquartile mean over {len(table.together)} datasets with 95 % interval (stratified bootstrap)"
    figure, (axes,) = panels(1, 0.2 * len(rows) + 0.4, title)
    for place, row in enumerate(rows):
        estimate = table.across[row].iqm
        _estimate(axes, estimate.value, place, estimate.interval, looks(study)[row], "x")
    _one_line_each(axes, rows)
    axes.set_xlabel("test top-1 (%)")
    return {"across_datasets": figure}


def cost(study: Study, baseline: str | None = None) -> dict[str, Figure]:
    """Seconds that initialising took against the tables' differences: a panel a dataset, a point a row."""
    seconds = study.runs.groupby(["row", "column"])["init_seconds"].mean().clip(lower=LEAST_SECONDS)
    table = build(study, baseline=baseline)
    pairs = _pairs(table)
    if not pairs:
        return {}
    columns = [column for column in table.columns if any(key[1] == column for key in pairs)]
    title = f"Cost of initialising against gain over {_baseline(table)}: mean with 95 % interval (t)"
    figure, grid = panels(len(columns), 2.0, title, sharex=True)
    handles: dict[str, Line2D] = {}
    for axes, column in zip(grid, columns, strict=True):
        for row, look in looks(study).items():
            if (row, column) in pairs:
                pair = pairs[row, column]
                handles[row] = _estimate(axes, seconds[row, column], pair.mean, pair.interval, look, "y")
        _zero(axes.axhline)
        axes.set_xscale("log")
        panel_title(axes, f"{safe(column)}: n={_seeds(pairs, column)}")
        axes.set(xlabel="initialisation (s)", ylabel="gain in test top-1 (points)")
        axes.grid()
    legend(figure, study, handles)
    return {"cost": figure}


def _baseline(table: Table) -> str:
    return safe(table.baseline) if table.baseline else "the own base"


def _pairs(table: Table) -> dict[tuple[str, str], Paired]:
    """Differences by row and column."""
    return {key: cell.against for key, cell in table.cells.items() if cell.against}


def _seeds(pairs: dict[tuple[str, str], Paired], column: str) -> str:
    """How many pairs the differences on a dataset are the mean over."""
    return span(pair.n for (_, its), pair in pairs.items() if its == column)


def _one_line_each(axes: Axes, rows: list[str]) -> None:
    """Rows from top to bottom."""
    axes.set_yticks(range(len(rows)), [safe(row) for row in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x")


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
