"""One comparison, one verdict: a difference by seed, its interval, and the p of the test that its grid names.

Tables, figures, pages, report, board and `rank` take comparisons from `compare`; nothing else computes one.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product

import pandas as pd

from vitinit.analysis import stats
from vitinit.analysis.frame import Study
from vitinit.analysis.rows import Key, values_by_seed
from vitinit.analysis.text import number, p_equals, signed
from vitinit.benchmark.contrasts import Contrast
from vitinit.initializers.errors import VitinitError

LEVEL = 0.05
"""Level of the tests, after correction."""
MAIN = "main"
"""Family of contrasts that name none: `pooled` and a check are for it alone, other families have Student's t."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Comparison(stats.Estimate):
    """Weighted sum of rows by seed, in points: one row minus another, say. Gains are positive even for error metrics.

    A template states a claim by the property it uses: `.above` fails where the records do not bear it, so a page whose
    records no longer bear its sentences is not written.
    """

    name: str
    by_seed: pd.Series[float]
    test: str = "none"
    """Test that the grid names: `t`, `pooled` or `sign_flip`; `none` of an unnamed comparison, which has no p."""
    family: str = ""
    """Family of named comparisons; empty of an unnamed one."""
    size: int = 1
    """Comparisons of its family, those without runs yet included: p is corrected for so many."""
    p: float = math.nan
    """Two-sided, corrected by Holm within the family."""
    check: float = math.nan
    """p of the check that the grid promised, corrected likewise; it decides nothing."""
    digits: int = 2

    @property
    def detectable(self) -> float:
        """Smallest effect that the test finds with power 0.8, corrected as the smallest p of its family is.

        NaN without an interval.
        """
        return self.detects(LEVEL / self.size) if self.low < self.high else math.nan

    def detects(self, level: float) -> float:
        """Return the smallest effect that the test finds with power 0.8 at a level."""
        if self.test == "sign_flip":
            return stats.sign_flips_detect(self.by_seed, level)
        return super().detects(level)

    @property
    def verdict(self) -> str:
        """`above`, `below`, `undetected`; `unconfirmed` if the interval excludes 0 and p > 0.05; empty without both."""
        if self.low <= 0 <= self.high:
            return "undetected"
        if math.isnan(self.low) or (self.test != "none" and math.isnan(self.p)):
            return ""
        if self.p > LEVEL:
            return "unconfirmed"
        return "above" if self.low > 0 else "below"

    @property
    def above(self) -> str:
        """Size of a gain: `2.20 points (95 % CI 1.79 to 2.60)`."""
        return self._claimed("above", f"{number(self.mean, self.digits)} points ({self._ends()})")

    @property
    def below(self) -> str:
        """Size of a loss, without its sign."""
        return self._claimed("below", f"{number(-self.mean, self.digits)} points ({(self * -1)._ends()})")

    @property
    def undetected(self) -> str:
        """Difference whose interval contains 0: `−0.11, 95 % CI −0.87 to 0.66`."""
        return self._claimed("undetected", f"{signed(self.mean, self.digits)}, {self._ends()}")

    @property
    def unconfirmed(self) -> str:
        """Difference whose interval excludes 0, and that fails its test: `+0.73, 95 % CI 0.03 to 1.44, p = 0.084`."""
        return self._claimed("unconfirmed", f"{signed(self.mean, self.digits)}, {self._ends()}, {self.p_text}")

    @property
    def every(self) -> str:
        """The words `at every seed`, of differences of one sign."""
        if not ((self.by_seed > 0).all() or (self.by_seed < 0).all()):
            raise self._unborne("of one sign at every seed")
        return "at every seed"

    @property
    def p_text(self) -> str:
        """Its p: `p = 0.031`."""
        if self.test == "none":
            raise VitinitError(f"{self.name}: no test of it is named by the grid")
        return f"p {p_equals(self.p)}"

    @property
    def short(self) -> str:
        """For a cell of a table: `+2.20 [1.79, 2.60]`."""
        return written(self.mean, self.low, self.high, self.digits)

    @property
    def told(self) -> str:
        """For a cell without a p beside it: `short`, and that it fails its test, if it does."""
        return self.short + (f", fails its test ({self.p_text})" if self.verdict == "unconfirmed" else "")

    def __str__(self) -> str:
        if math.isnan(self.low):
            raise VitinitError(f"{self.name}: under 3 common seeds, so there is no interval to write")
        return f"{signed(self.mean, self.digits)} ({self._ends()})"

    def __sub__(self, other: Comparison) -> Comparison:
        return unnamed(f"({self.name}) − ({other.name})", self.by_seed - other.by_seed, self.digits)

    def __mul__(self, times: float) -> Comparison:
        return replace(self, by_seed=times * self.by_seed, mean=times * self.mean, std=abs(times) * self.std)

    def _ends(self) -> str:
        return f"95 % CI {number(self.low, self.digits)} to {number(self.high, self.digits)}"

    def _claimed(self, verdict: str, text: str) -> str:
        if self.verdict != verdict:
            raise self._unborne(verdict)
        return text

    def _unborne(self, claim: str) -> VitinitError:
        records = self.short + ("" if self.test == "none" else f", {self.p_text}")
        return VitinitError(
            f"the page says that {self.name} is {claim}; the records give {records}. "
            "Change the sentence in the template"
        )


def compare(
    study: Study,
    contrast: Contrast | tuple[str, str],
    column: str,
    *,
    epoch: int = 0,
    seeds: Iterable[int] | None = None,
) -> Comparison | None:
    """Compare rows of one column by seed; None where a row has no runs, or no seed is common to all.

    What the grid names has the grid's interval and test, after the last epoch and over all seeds. All else has
    Student's interval and no p.

    Args:
        study: The records.
        contrast: Weights of rows, or two rows: the first minus the second.
        column: Of all rows.
        epoch: After which; 0 for the last.
        seeds: These only; None for all.
    """
    if isinstance(contrast, tuple):
        contrast = between(*contrast)
    if all((spec := study.examples.get((row, column))) and spec.recipe.epochs == epoch for row in contrast.weights):
        epoch = 0
    if not epoch and seeds is None:
        for known in study.contrasts:
            if known.compared == contrast.compared and (comparison := named(study).get((known.name, column))):
                row = min(contrast.weights)
                times = round(contrast.weights[row] / known.weights[row], 6)
                return replace(comparison * times, name=contrast.name)
    d = _differences(study, contrast, column, epoch)
    if seeds is not None:
        d = d[d.index.isin(list(seeds))]
    return unnamed(contrast.name, d) if len(d) else None


def unnamed(name: str, by_seed: pd.Series[float], digits: int = 2) -> Comparison:
    """Return a comparison that no grid names: Student's interval, no p. Seeds without a value are left out."""
    by_seed = by_seed.dropna()
    return Comparison(**vars(stats.student(by_seed)), name=name, by_seed=by_seed, digits=digits)


def between(first: str, second: str) -> Contrast:
    """Return the contrast of two rows: the first minus the second."""
    return Contrast.model_construct(name=f"{first} − {second}", weights={first: 1, second: -1})  # rows of records


@lru_cache(maxsize=8)
def named(study: Study) -> dict[Key, Comparison]:
    """Return the comparisons that the grid names, by name and column.

    A comparison without runs yet counts in the correction, so that a p can only fall when its runs come. A skipped one
    does not, unless some of its seeds were run.
    """
    analysis, comparisons = study.layout.analysis, dict[Key, Comparison]()
    skipped = {(run.row, study.column[run.run_id]) for run in study.contents.skipped.values()}
    has_runs = {study.column[run.run_id] for run in study.outcomes if study.layout.has(run.spec)}
    columns = [column for column in study.columns if column in has_runs]
    # a number in place of each dataset of the grid without a run, which has no label yet
    columns += map(str, range(len(columns), len(study.layout.columns)))
    for family in dict.fromkeys(contrast.family for contrast in study.contrasts):
        tested, missing = dict[Key, Comparison](), 0
        pooled = analysis.interval == "pooled" and family == MAIN
        test = "t" if analysis.test == "pooled" and not pooled else analysis.test
        contrasts = [contrast for contrast in study.contrasts if contrast.family == family]
        for contrast, column in product(contrasts, columns):
            d = _differences(study, contrast, column)
            if len(d):
                comparison = replace(unnamed(contrast.name, d), test=test, family=family)
                if pooled:
                    rows = {row: values for (row, place), values in values_by_seed(study).items() if place == column}
                    std, df = stats.pooled(pd.DataFrame(rows))
                    comparison = replace(comparison, std=std * math.hypot(*contrast.weights.values()), df=df)
                tested[contrast.name, column] = comparison
            elif not any((row, column) in skipped for row in contrast.weights):
                missing += 1
        p = _corrected(test, tested.values(), missing)
        check = _corrected(analysis.check if family == MAIN else None, tested.values(), missing)
        for at, (key, comparison) in enumerate(tested.items()):
            comparisons[key] = replace(comparison, size=len(p), p=p[at], check=check[at])
    return comparisons


def _corrected(test: str | None, comparisons: Collection[Comparison], missing: int) -> list[float]:
    """Return p by a test, corrected by Holm over these comparisons and so many without runs; NaN without a test."""
    if test == "sign_flip":
        p = [stats.sign_flip_p(comparison.by_seed) for comparison in comparisons]
    elif test in ("t", "pooled"):
        p = [comparison.t_test() for comparison in comparisons]
    else:
        p = [math.nan] * len(comparisons)
    return stats.holm(p + [1.0] * missing)


def _differences(study: Study, contrast: Contrast, column: str, epoch: int = 0) -> pd.Series[float]:
    """Return the weighted sum of rows at the seeds that all have."""
    values, sign = values_by_seed(study, epoch), -1 if column in study.lower_is_better else 1
    weighted = [
        sign * weight * values.get((row, column), pd.Series(dtype=float)) for row, weight in contrast.weights.items()
    ]
    return sum(weighted[1:], weighted[0]).dropna().sort_index()


def written(mean: float, low: float, high: float, digits: int = 2) -> str:
    """Write a difference for a cell of a table: `+2.20 [1.79, 2.60]`; without its interval where there is none."""
    interval = "" if math.isnan(low) else f" [{number(low, digits)}, {number(high, digits)}]"
    return signed(mean, digits) + interval
