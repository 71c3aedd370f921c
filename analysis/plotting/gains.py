"""Shared parts of the figures of differences: a table's differences, and the drawing of an estimate."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from vitinit.analysis.frame import Study
from vitinit.analysis.plotting.style import LineStyle, safe, span
from vitinit.analysis.tables.registry import build
from vitinit.analysis.tables.shared import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

    from vitinit.analysis.stats import Interval, Paired

NO_PAIRS = "no row has a seed in common with its base, or with the baseline"


def compared_to(table: Table) -> str:
    """Return the name of the baseline of differences, for a title."""
    return safe(table.baseline) if table.baseline else "the own base"


@lru_cache(maxsize=1)
def table_of(study: Study, baseline: str | None) -> Table:
    """The study's own table, which has the differences: computed once for all figures of them."""
    return build(study, baseline=baseline)


def pairs_of(table: Table) -> dict[tuple[str, str], Paired]:
    """Differences by row and column."""
    return {key: cell.against for key, cell in table.cells.items() if cell.against}


def seeds_of(pairs: dict[tuple[str, str], Paired], column: str) -> str:
    """Return the number of pairs that the differences on a dataset are the mean over."""
    return span(pair.n for (_, its), pair in pairs.items() if its == column)


def one_line_each(axes: Axes, rows: list[str]) -> None:
    """Rows from top to bottom."""
    axes.set_yticks(range(len(rows)), [safe(row) for row in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x")


def draw_estimate(axes: Axes, x: float, y: float, look: LineStyle, across: Interval | None = None) -> Line2D:
    """A marker with its interval along x, with caps; returns what a legend shows."""
    if across:
        axes.plot((across.low, across.high), (y, y), color=look.color, marker="|", markersize=6)
    (point,) = axes.plot([x], [y], linestyle="", zorder=3, **look.point)
    return point


def draw_zero(axes: Axes) -> None:
    """No difference."""
    axes.axvline(0, color="black", linewidth=0.8, zorder=1)
