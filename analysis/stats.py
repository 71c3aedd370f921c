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

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import ndtri, stdtr, stdtrit

Floats = NDArray[np.float64]
Values: TypeAlias = "Sequence[float] | pd.Series[float] | Floats"

POWER = 0.8
"""Power of the smallest detectable effect: four of five such studies find it."""
LEAST_PAIRS = 3
"""No interval under so many seeds or pairs."""
MOST_PAIRS = 40
"""No sign-flip test over so many: it would count 2^20 sums for each half."""
_ROUNDING = 1e-9
"""Sums of the same numbers in another order are equal up to this share."""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """Mean of values by seed, whose error follows Student's t."""

    n: int
    mean: float
    std: float
    """Standard deviation of the values (ddof=1), or of their noise; NaN for one seed."""
    df: float
    """Degrees of freedom."""

    @property
    def error(self) -> float:
        """Standard error."""
        return self.std / float(self.n**0.5)

    @property
    def low(self) -> float:
        """Lower end of the 95 % interval; NaN under `LEAST_PAIRS` values, or where all are equal."""
        return self.mean - self._half

    @property
    def high(self) -> float:
        """Upper end."""
        return self.mean + self._half

    @property
    def _half(self) -> float:
        return self._t(0.975) * self.error if self.df >= LEAST_PAIRS - 1 and self.error else np.nan

    def t_test(self) -> float:
        """Return the two-sided p of a mean of 0, one test alone; NaN where there is no interval."""
        if np.isnan(self._half):
            return np.nan
        return 2 * float(stdtr(self.df, -abs(self.mean) / self.error))

    def detects(self, level: float) -> float:
        """Return the mean that four of five such studies find at this level (approximation)."""
        return (self._t(1 - level / 2) + self._t(POWER)) * self.error

    def _t(self, quantile: float) -> float:
        return float(stdtrit(self.df, quantile))


def student(values: Values) -> Estimate:
    """Estimate the mean of values by their own spread."""
    x = np.asarray(values, dtype=float)
    std = round(float(x.std(ddof=1)), 12) if len(x) > 1 else np.nan
    return Estimate(n=len(x), mean=float(x.mean()), std=std, df=len(x) - 1)


def pooled(rows: pd.DataFrame) -> tuple[float, int]:
    """Fit `value = row + seed + noise`, over the seeds that all rows have.

    With few seeds the spread of one difference is itself a lucky or unlucky draw; all rows together estimate it better,
    if noise is alike in all. With two rows this is the paired t test.

    Args:
        rows: A column for each row, a line for each seed.

    Returns:
        The standard deviation of the noise, and its degrees of freedom; NaN and 0 where none is left.
    """
    values = rows.dropna().to_numpy(float)
    seeds, columns = values.shape
    df = (seeds - 1) * (columns - 1)
    if df < 1:
        return np.nan, 0
    residuals = values - values.mean(0) - values.mean(1, keepdims=True) + values.mean()
    return round(float(np.sqrt((residuals**2).sum() / df)), 12), df


def sign_flip_p(values: Values) -> float:
    """Return the two-sided p of mean 0 under all 2^n sign flips; NaN under `LEAST_PAIRS` and over `MOST_PAIRS`.

    The sums of the first half of the pairs meet those of the second: 2^(n/2) numbers in place of 2^n.
    """
    differences = np.asarray(values, dtype=float)
    n, observed = len(differences), abs(float(differences.sum()))
    if not LEAST_PAIRS <= n <= MOST_PAIRS:
        return np.nan
    at_least = observed - _ROUNDING * float(np.abs(differences).sum())
    left, right = _signed_sums(differences[: n // 2]), np.sort(_signed_sums(differences[n // 2 :]))
    as_large = (len(right) - np.searchsorted(right, at_least - left)).sum()
    return min(1.0, 2 * float(as_large) / 2.0**n)


def _signed_sums(x: Floats) -> Floats:
    sums = np.zeros(1)
    for value in x:
        sums = np.concatenate([sums + value, sums - value])
    return sums


def sign_flips_detect(values: Values, level: float) -> float:
    """Return the mean that a sign-flip test at this level finds with normal noise and power 0.8; inf where none is.

    Where only differences of one sign reach the level: n of n have it with probability 0.8. Elsewhere as the t test
    (approximation).
    """
    n = len(values)
    if n < 2 or level < 2 / 2.0**n:
        return np.inf
    if level < 4 / 2.0**n:
        return float(ndtri(POWER ** (1 / n)) * np.std(values, ddof=1))
    return student(values).detects(level)


def holm(p: Sequence[float]) -> list[float]:
    """Correct p by Holm's step-down procedure, in the order given: reject where the result is at most the level."""
    order = np.argsort(p, kind="stable")
    corrected = np.zeros(len(p))
    corrected[order] = np.maximum.accumulate(np.asarray(p)[order] * np.arange(len(p), 0, -1))
    return np.minimum(corrected, 1).tolist()
