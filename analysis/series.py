"""Data of line charts: computed once, drawn as files by `figures` and `curves`, and in the report.

A chart is a few panels with the same axes, and in each of them a few lines over x: means over seeds with their spread.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Line:
    """Means over x; the four arrays are as long as one another."""

    x: NDArray[Any]
    mean: NDArray[Any]
    std: NDArray[Any]
    """Sample standard deviation; NaN where n is 1."""
    n: NDArray[Any]
    least: float = -math.inf
    most: float = math.inf
    """Values that there can be: the band ends there."""

    @property
    def band(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Mean minus and plus one standard deviation, within what there can be."""
        low, high = self.mean - self.std, self.mean + self.std
        return low.clip(self.least, self.most), high.clip(self.least, self.most)


@dataclass(frozen=True)
class Scale:
    """Meaning of the axes and lines of a panel."""

    x: str
    y: str
    each: str
    """Noun for one line: a row, a layer, a head."""
    log_x: bool = False


@dataclass(frozen=True)
class Panel:
    """One pair of axes."""

    title: str
    column: str
    """The column of the tables that all of it is from; empty where it is from several."""
    scale: Scale
    lines: dict[str, Line]
    """By what a legend calls them."""
    row: str | None = None
    """The row that all lines are of; None: a line is a row, or of several."""
    reference: float | None = None
    """Position of a dotted line."""


@dataclass(frozen=True)
class Chart:
    """Panels that are one figure."""

    title: str
    where: str
    """Common subject of all panels, if there is one: a dataset, a row and its seed."""
    panels: list[Panel]
    over: str = "seeds"
    """Dimension that means are over."""
    reference: str = ""
    """Meaning of the dotted lines."""
    note: str = ""
    """Further facts needed to read it."""


def line(groups: Any, least: float = -math.inf, most: float = math.inf) -> Line:
    """Mean, spread and number of values that are grouped by x (`DataFrame.groupby(x)[values]`); see `Line`."""
    stats = groups.agg(["mean", "std", "count"])
    mean, std, n = (stats[name].to_numpy() for name in ("mean", "std", "count"))
    return Line(stats.index.to_numpy(), mean, std, n, least, most)


def lines(groups: Any) -> dict[Any, Line]:
    """The same of values that are grouped by line and x, by line: at once, which is faster than each alone."""
    stats = groups.agg(["mean", "std", "count"])
    names, xs = stats.index.get_level_values(0), stats.index.get_level_values(1)
    columns: list[NDArray[Any]] = [xs.to_numpy(), *(stats[name].to_numpy() for name in ("mean", "std", "count"))]
    starts = [i for i in range(len(names)) if i == 0 or names[i] != names[i - 1]]
    return {
        names[start]: Line(*[column[start:end] for column in columns])  # type: ignore[arg-type]
        for start, end in zip(starts, [*starts[1:], len(names)], strict=True)
    }


def mean_distance(side: int) -> float:
    """Nonlocality of uniform attention: mean distance of two tokens of a grid, a token and itself included."""
    places = range(side)
    by_offset = (
        (side - abs(down)) * (side - abs(across)) * math.hypot(down, across)
        for down in range(1 - side, side)
        for across in range(1 - side, side)
    )
    return sum(by_offset) / len(places) ** 4
