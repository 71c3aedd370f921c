"""Paired differences by seed between two rows of a study, and the tests of those that its grid names."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from vitinit.analysis.stats import Interval, Paired, Pooled, holm, paired, pooled
from vitinit.analysis.tables.shared import Key, skipped, values_by_seed
from vitinit.analysis.text import interval_text, signed

if TYPE_CHECKING:
    import pandas as pd

    from vitinit.analysis.frame import Study

LEVEL = 0.05
"""Level of the tests: a p that cannot be under it is not shown."""


def compare(ours: pd.Series[float] | None, theirs: pd.Series[float] | None) -> Paired | None:
    """Compare two series by seed; None where one is missing or they have no seed in common."""
    return None if ours is None or theirs is None else paired(ours, theirs)


def gain(study: Study, row: str, over: str) -> Paired | None:
    """Compare two rows in the study's first column; a gain is positive, in an error too."""
    sign, column = -1 if study.lower_is_better else 1, study.columns[0]
    values = {key: sign * its for key, its in values_by_seed(study, "last").items()}
    return compare(values.get((row, column)), values.get((over, column)))


def written(points: float, its: Interval, digits: int = 2) -> str:
    """A difference for a cell of a table: `+2.20 [1.79, 2.60]`."""
    return f"{signed(points, digits)} {interval_text(its, digits)}"


def label(pair: tuple[str, str]) -> str:
    """Return the label of a contrast: the first minus the second."""
    return f"{pair[0]} − {pair[1]}"


@dataclass(frozen=True)
class Contrast:
    """A comparison that a grid names, on one dataset: the first minus the second row, with its tests."""

    against: Paired
    p: float
    """Sign-flip test, corrected by Holm over all comparisons that the grid names."""
    could_show: bool
    """False where `p` could not be under `LEVEL`, whatever the numbers."""
    pooled: Interval | None = None
    """95 % interval with the noise of all rows (`stats.Pooled`)."""
    pooled_p: float | None = None
    """p by that model, corrected by Holm likewise."""
    detectable: float | None = None
    """Smallest difference that the model's test finds with power 0.8."""


@dataclass(frozen=True)
class Contrasts:
    """All comparisons that a grid names."""

    tested: dict[Key, Contrast]
    """Contrasts with a seed in common, by label and column."""
    size: int
    """Number of comparisons that p is corrected for: those without runs yet, too."""
    noise: dict[str, Pooled]
    """By column."""


@lru_cache(maxsize=4)
def contrasts(study: Study, metric: str = "last") -> Contrasts:
    """Test the comparisons that the grid names.

    One that has no run yet keeps its place in the correction, so that a p can only fall when it comes. One that was
    skipped has none, unless other seeds of it were not.
    """
    values = values_by_seed(study, metric)
    pairs = {
        (label(pair), column): difference
        for pair in study.contrasts
        for column in study.columns
        if (difference := compare(*(values.get((row, column)) for row in pair)))
    }
    left_out = {(label(pair), column) for pair in study.contrasts for row, column in skipped(study) if row in pair}
    named = [(label(pair), column) for pair in study.contrasts for column in study.columns_of_grid]
    places = [key for key in named if key in pairs or key not in left_out]
    fits = {column: pooled([its for (_, place), its in values.items() if place == column]) for column in study.columns}
    noise = {column: fit for column, fit in fits.items() if fit}

    def corrected(p: dict[Key, float]) -> dict[Key, float]:
        return dict(zip(places, holm([p.get(key, 1.0) for key in places]), strict=True))

    by_flips = corrected({key: pair.p for key, pair in pairs.items()})
    least = corrected({key: pair.least_p for key, pair in pairs.items()})
    by_model = corrected({key: noise[key[1]].p(pair) for key, pair in pairs.items() if key[1] in noise})
    tested = {}
    for key, pair in pairs.items():
        fit = noise.get(key[1])
        of_model = (fit.interval(pair), by_model[key], fit.detectable(pair.n)) if fit else ()
        tested[key] = Contrast(pair, by_flips[key], least[key] <= LEVEL, *of_model)
    return Contrasts(tested, len(places), noise)
