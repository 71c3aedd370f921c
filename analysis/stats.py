"""Statistics over seeds: paired differences and their intervals, exact sign-flip tests, and Holm's correction.

Every interval is Student's t, over seeds or over differences by seed. Why not the percentile bootstrap: with so few
seeds it is too narrow. Measured share of 95 % intervals that hold the true mean, 2,000 samples each::

    seeds   normal differences                    exponential (skewed) differences
            t      percentile  BCa    studentised  t      percentile  BCa    studentised
    3       95.2   75.6        73.1   -            89.2   71.0        69.0   -
    5       95.7   84.4        84.2   94.8         89.4   78.8        80.2   93.6
    10      94.7   90.1        90.4   94.5         90.5   86.4        87.7   94.0
    20      95.0   92.6        92.0   94.9         91.1   89.8        90.8   94.3

Why not `scipy.stats`: `permutation_test` gives the same p, at 13 pairs in 270 ms in place of 0.1 ms; `t.interval` is
equal to ten digits, and its import takes longer than a table does. `scipy.special` has what both are made of.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

POWER = 0.8
"""Power of the smallest detectable effect: four of five such studies find it."""
LEAST_PAIRS = 3
"""No interval under so many seeds or pairs."""
MOST_PAIRS = 40
"""No sign-flip test over so many: it would count 2^20 sums for each half."""
_ROUNDING = 1e-9
"""Sums of the same numbers in another order are equal up to this share."""


@dataclass(frozen=True)
class Interval:
    """A two-sided 95 % interval."""

    low: float
    high: float

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high


@dataclass(frozen=True)
class Sample:
    """Values of the seeds of one cell."""

    n: int
    mean: float
    std: float | None
    """Sample standard deviation (ddof=1); None for one seed."""
    interval: Interval | None
    """Confidence interval of the mean (t)."""


@dataclass(frozen=True)
class Paired:
    """One cell minus another, by seed."""

    n: int
    """Seeds that both have."""
    mean: float
    interval: Interval | None
    """Confidence interval of the mean difference (t)."""
    p: float
    """Sign-flip test, two-sided, one test alone; NaN for a single pair, and over `MOST_PAIRS`."""

    @property
    def least_p(self) -> float:
        """The test cannot go lower, whatever the numbers."""
        return sign_flip_p(np.ones(self.n))


@dataclass(frozen=True)
class Pooled:
    """Noise of a study, pooled over its rows by the additive model `value = row + seed + noise`.

    With few seeds the spread of one difference is itself a lucky or unlucky draw; all rows together estimate it better.
    With two rows this is the paired t test.
    """

    std: float
    """Residual standard deviation, of one value."""
    df: int

    def interval(self, pair: Paired) -> Interval:
        """Return Student's interval of a difference over common seeds."""
        half = self._t(0.975) * self._error(pair.n)
        return Interval(pair.mean - half, pair.mean + half)

    def p(self, pair: Paired) -> float:
        """Return the two-sided p of a difference of 0, one test alone."""
        from scipy.special import stdtr

        return 2 * float(stdtr(self.df, -abs(pair.mean) / self._error(pair.n)))

    def detectable(self, n: int, level: float = 0.05) -> float:
        """Return the difference that four of five studies with n seeds would find at this level (approximation)."""
        return (self._t(1 - level / 2) + self._t(POWER)) * self._error(n)

    def _t(self, quantile: float) -> float:
        from scipy.special import stdtrit

        return float(stdtrit(self.df, quantile))

    def _error(self, n: int) -> float:
        return self.std * float(np.sqrt(2 / n))


def sample(values: Sequence[float] | pd.Series[float] | None) -> Sample | None:
    """Return mean, spread and interval of values; None where there are none."""
    if values is None or not len(values):
        return None
    x = np.asarray(values, dtype=float)
    std = float(x.std(ddof=1)) if len(x) > 1 else None
    return Sample(len(x), float(x.mean()), std, t_interval(x))


def paired(values: pd.Series[float], baseline: pd.Series[float]) -> Paired | None:
    """Compare two series, each indexed by seed, over their common seeds; None without such a seed."""
    d = differences(values, baseline)
    if not len(d):
        return None
    return Paired(len(d), float(d.mean()), t_interval(d), sign_flip_p(d))


def pooled(rows: Sequence[pd.Series[float]]) -> Pooled | None:
    """Fit `value = row + seed + noise` by least squares; a seed may be missing in a row.

    Args:
        rows: The values of each row, indexed by seed.

    Returns:
        None where no degree of freedom, or no noise, is left.
    """
    if not rows:
        return None
    values = np.concatenate([row.to_numpy(float) for row in rows])
    of_row = np.repeat(np.arange(len(rows)), [len(row) for row in rows])
    seeds, of_seed = np.unique(np.concatenate([row.index for row in rows]), return_inverse=True)
    design = np.hstack([np.eye(len(rows))[of_row], np.eye(len(seeds))[of_seed]])
    effects, _, rank, _ = np.linalg.lstsq(design, values, rcond=None)
    df = len(values) - int(rank)
    squares = float(((values - design @ effects) ** 2).sum())
    if df < 1 or squares <= _ROUNDING * float((values**2).sum()):
        return None
    return Pooled(float(np.sqrt(squares / df)), df)


def differences(values: pd.Series[float], baseline: pd.Series[float]) -> Floats:
    """One difference per common seed, in the order of the seeds."""
    return np.asarray((values - baseline).dropna().sort_index(), dtype=np.float64)


def t_interval(x: Floats) -> Interval | None:
    """Student's interval of the mean; None under `LEAST_PAIRS` values."""
    from scipy.special import stdtrit

    n = len(x)
    if n < LEAST_PAIRS:
        return None
    half = float(stdtrit(n - 1, 0.975) * x.std(ddof=1) / np.sqrt(n))
    return Interval(float(x.mean()) - half, float(x.mean()) + half)


def sign_flip_p(differences: Floats) -> float:
    """Two-sided p of mean 0 under all 2^n sign flips; NaN for a single pair, and over `MOST_PAIRS`.

    The sums of the first half of the pairs meet those of the second: 2^(n/2) numbers in place of 2^n.
    """
    n, observed = len(differences), abs(float(differences.sum()))
    if not 1 < n <= MOST_PAIRS:
        return float("nan")
    at_least = observed - _ROUNDING * float(np.abs(differences).sum())
    left, right = _signed_sums(differences[: n // 2]), np.sort(_signed_sums(differences[n // 2 :]))
    as_large = (len(right) - np.searchsorted(right, at_least - left)).sum()
    return min(1.0, 2 * float(as_large) / 2.0**n)


def _signed_sums(x: Floats) -> Floats:
    sums = np.zeros(1)
    for value in x:
        sums = np.concatenate([sums + value, sums - value])
    return sums


def detectable(n: int, interval: Interval) -> float:
    """The difference that a paired t test would find in four of five studies of n seeds with this interval.

    (The t quantile of 0.975 + that of 0.8) times the standard error, with n - 1 degrees of freedom: an approximation.
    """
    from scipy.special import stdtrit

    quantile = float(stdtrit(n - 1, 0.975))
    return (quantile + float(stdtrit(n - 1, POWER))) * (interval.high - interval.low) / 2 / quantile


def holm(p: Sequence[float]) -> list[float]:
    """Holm's step-down correction, in the order given: reject where the result is at most the level."""
    order = np.argsort(p, kind="stable")
    corrected = np.zeros(len(p))
    corrected[order] = np.maximum.accumulate(np.asarray(p)[order] * np.arange(len(p), 0, -1))
    result: list[float] = np.minimum(corrected, 1).tolist()
    return result
