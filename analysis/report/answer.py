"""The answer of a study: what rows gain, on their base or in the comparisons that the grid names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from vitinit.analysis.frame import Study
from vitinit.analysis.plotting.style import span
from vitinit.analysis.tables.contrasts import label, of_contrasts
from vitinit.analysis.tables.printing.reading import sentences, without_numbers
from vitinit.analysis.tables.render import interval_text, p_shown
from vitinit.analysis.tables.shared import Table, values_by_seed
from vitinit.analysis.text import count, signed

if TYPE_CHECKING:
    from vitinit.analysis.stats import Interval, Paired

ROOM = 0.06
"""Share of the axis left free on either side of the drawing."""
TICKS = 4
"""Steps of the axis, or a few more."""


@dataclass(frozen=True)
class Gain:
    """A row minus its base on one dataset."""

    row: str
    base: str
    pair: Paired
    seeds: list[float]
    """The differences that the pair is of, by seed."""
    p: str | None
    """Corrected, where it could be under 0.05 at all."""

    @property
    def points(self) -> str:
        """The mean in points."""
        return signed(self.pair.mean)

    @property
    def between(self) -> str:
        """The interval, or that there is none."""
        return interval_text(self.pair.interval) if self.pair.interval else "no interval"

    @property
    def verdict(self) -> str:
        """`ahead`, `behind` or `open`, by its interval."""
        return verdict(self.pair.interval)


def verdict(interval: Interval | None) -> str:
    """On which side of 0 an interval lies; `open` for one that holds 0, and for none."""
    if interval is None or 0 in interval:
        return "open"
    return "ahead" if interval.low > 0 else "behind"


@dataclass(frozen=True)
class Forest:
    """The gains of a study, on one axis."""

    columns: dict[str, list[Gain]]
    """By dataset, in the order of the table."""
    baseline: str | None
    """The row that all differences are to; None: each to its own base."""
    named: bool
    """True if the differences are the contrasts that the grid names."""
    low: float
    high: float
    ticks: list[float]

    @property
    def base(self) -> str | None:
        """The one row that all differences are to; None where they are to several."""
        bases = {gain.base for gains in self.columns.values() for gain in gains}
        return bases.pop() if len(bases) == 1 else None

    def at(self, value: float) -> str:
        """A place on the axis in percent of its length."""
        return f"{100 * (value - self.low) / (self.high - self.low):.2f}%"

    def n(self, column: str) -> str:
        """Return the number of pairs of seeds that the differences on a dataset are over."""
        return span(gain.pair.n for gain in self.columns[column])

    def number(self, which: str) -> int:
        """Return the number of gains with this verdict."""
        return sum(gain.verdict == which for gains in self.columns.values() for gain in gains)

    @property
    def tested(self) -> bool:
        """True if any has a p to show."""
        return any(gain.p for gains in self.columns.values() for gain in gains)


@dataclass(frozen=True)
class Answer:
    """First part of a study's section: question, gains, limits."""

    forest: Forest | None
    """None where no row has a seed in common with its base."""
    sentences: list[str]
    missing: list[str]
    """Cells that were not run, with the reason."""


def answer(table: Table, named: Table | None = None) -> Answer:
    """Return the answer of a study.

    Args:
        table: Its own.
        named: The comparisons that the grid names; they are then the answer.
    """
    return Answer(forest(named or table), sentences(table, named), [*without_numbers(table), *_absent(table)])


def forest(table: Table, metric: str = "last") -> Forest | None:
    """The gains of a table by a metric, and an axis that holds them all, their intervals, their seeds and 0."""
    from matplotlib.ticker import MaxNLocator

    from vitinit.analysis.stats import differences

    values = values_by_seed(table.study, metric)
    firsts = {label(pair): pair[0] for pair in table.study.contrasts}
    columns = {}
    for column in table.columns:
        gains = []
        for row in table.rows:
            cell = table.cells[row, column]
            if cell.against:
                ours, base = firsts.get(row, row), table.baselines[row]
                seeds = differences(values[ours, column], values[base, column]).tolist()
                gains.append(Gain(ours, base, cell.against, seeds, p_shown(cell)))
        if gains:
            columns[column] = gains
    if not columns:
        return None
    every = [gain for gains in columns.values() for gain in gains]
    ends = [end for gain in every if (its := gain.pair.interval) for end in (its.low, its.high)]
    drawn = [0.0, *ends, *(seed for gain in every for seed in gain.seeds)]
    room = ROOM * ((max(drawn) - min(drawn)) or 1.0)
    low, high = min(drawn) - room, max(drawn) + room
    ticks = [float(tick) for tick in MaxNLocator(TICKS).tick_values(low, high) if low <= tick <= high]
    return Forest(columns, table.baseline, of_contrasts(table), low, high, ticks)


def _absent(table: Table) -> list[str]:
    """Cells in which no run is finished, where none was skipped or has failed."""
    study = table.study
    known = {
        (run.row, study.column[run.run_id])
        for run in (*study.contents.skipped.values(), *study.contents.failed.values())
    }
    cells = [(row, column) for row in study.rows for column in study.columns]
    absent = [key for key in cells if (key[1], key[0]) not in study.cells and key not in known]
    if not absent:
        return []
    named = ", ".join(f"{row} on {column}" for row, column in absent[:4])
    more = f" and {len(absent) - 4} more" if len(absent) > 4 else ""
    return [f"{count(len(absent), 'combination')} without a record: {named}{more}"]


def seeds(study: Study) -> str:
    """Return the number of seeds of a cell, fewest and most."""
    return span(len(runs) for runs in study.cells.values())
