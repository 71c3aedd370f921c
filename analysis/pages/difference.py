"""Paired differences in the form in which a page writes them.

A template states a claim by the property it uses: `gain(...).above` fails where the interval does not lie above 0, so a
page whose records no longer bear its sentences is not written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from vitinit.analysis import stats
from vitinit.analysis.gains import written
from vitinit.analysis.text import number, p_written, signed
from vitinit.initializers.errors import VitinitError

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Difference:
    """Paired difference by seed, in points, with its 95 % interval."""

    name: str
    by_seed: pd.Series[float]
    digits: int = 2
    pooled: stats.Interval | None = None
    """95 % interval with the noise of all rows, in the place of Student's."""

    @property
    def mean(self) -> float:
        """Mean over seeds."""
        return float(self.by_seed.mean())

    @property
    def interval(self) -> stats.Interval:
        """95 % interval (Student's t, unless a pooled one is given)."""
        found = self.pooled or stats.t_interval(np.asarray(self.by_seed, dtype=float))
        if found is None:
            raise VitinitError(f"{self.name}: under 3 common seeds, so there is no interval to write")
        return found

    def __str__(self) -> str:
        return f"{signed(self.mean, self.digits)} ({self._ends(1)})"

    @property
    def short(self) -> str:
        """For a cell of a table: `+2.20 [1.79, 2.60]`."""
        return written(self.mean, self.interval, self.digits)

    @property
    def above(self) -> str:
        """Size of a gain: `2.20 points (95 % CI 1.79 to 2.60)`.

        Raises:
            VitinitError: the interval does not lie above 0.
        """
        return self._claimed(
            self.interval.low > 0, "above 0", f"{number(self.mean, self.digits)} points ({self._ends(1)})"
        )

    @property
    def below(self) -> str:
        """Size of a loss, without its sign.

        Raises:
            VitinitError: the interval does not lie below 0.
        """
        return self._claimed(
            self.interval.high < 0, "below 0", f"{number(-self.mean, self.digits)} points ({self._ends(-1)})"
        )

    @property
    def undetected(self) -> str:
        """Difference whose interval contains 0: `−0.11, 95 % CI −0.87 to 0.66`.

        Raises:
            VitinitError: the interval does not contain 0.
        """
        return self._claimed(0 in self.interval, "around 0", f"{signed(self.mean, self.digits)}, {self._ends(1)}")

    @property
    def every(self) -> str:
        """The words `at every seed`.

        Raises:
            VitinitError: the difference has another sign, or is 0, at some seed.
        """
        one_sign = bool((self.by_seed > 0).all() or (self.by_seed < 0).all())
        return self._claimed(one_sign, "of one sign at every seed", "at every seed")

    def __sub__(self, other: Difference) -> Difference:
        return Difference(f"({self.name}) − ({other.name})", (self.by_seed - other.by_seed).dropna(), self.digits)

    def _ends(self, sign: int) -> str:
        low, high = sorted((sign * self.interval.low, sign * self.interval.high))
        return f"95 % CI {number(low, self.digits)} to {number(high, self.digits)}"

    def _claimed(self, holds: bool, claim: str, text: str) -> str:
        if not holds:
            raise VitinitError(
                f"the page says that {self.name} is {claim}; the records give {written(self.mean, self.interval)}. "
                "Change the sentence in the template"
            )
        return text


def holm(differences: Sequence[Difference]) -> list[str]:
    """Return p of each difference by seed, two-sided, Holm over all of them: `0.016`, `< 0.001`."""
    from scipy.stats import ttest_1samp

    return [p_written(p) for p in stats.holm([float(ttest_1samp(each.by_seed, 0).pvalue) for each in differences])]


def pooled_estimate(*studies: Sequence[Difference]) -> str:
    """Return the mean of differences with equal weights, and its 95 % interval with Welch's degrees of freedom.

    Args:
        studies: Differences by study. Those of one study share seeds and images, so they are averaged by seed first.
    """
    from scipy.special import stdtrit

    count = sum(map(len, studies))
    means = [sum((each.by_seed for each in differences[1:]), differences[0].by_seed) / count for differences in studies]
    errors = [float(by_seed.var(ddof=1)) / len(by_seed) for by_seed in means]
    squares = sum(its**2 / (len(by_seed) - 1) for its, by_seed in zip(errors, means, strict=True))
    half = float(stdtrit(sum(errors) ** 2 / squares, 0.975)) * sum(errors) ** 0.5
    mean = sum(float(by_seed.mean()) for by_seed in means)
    return f"{signed(mean)} (95 % CI {number(mean - half)} to {number(mean + half)})"
