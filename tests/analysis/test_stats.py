"""Statistics against scipy, hand calculation, and simulation."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import stats as scipy_stats

from vitinit.analysis import stats
from vitinit.analysis.stats import Interval

RNG = np.random.default_rng(3)


@pytest.fixture(autouse=True)
def _drawn_from_the_start():
    """So that no test's values depend on which tests ran before it."""
    RNG.bit_generator.state = np.random.default_rng(3).bit_generator.state


def series(values, seeds=None):
    return pd.Series(values, index=range(len(values)) if seeds is None else seeds, dtype=float)


@pytest.mark.parametrize(("n", "shift"), [(2, 1.0), (5, 0.0), (11, 1.0)])
def test_sign_flips_against_scipy(n, shift):
    for values in (RNG.normal(shift, size=n), RNG.integers(-2, 3, size=n) + shift):
        expected = scipy_stats.permutation_test(
            (values,), np.sum, permutation_type="samples", n_resamples=np.inf, vectorized=False
        ).pvalue
        assert stats.sign_flip_p(values) == pytest.approx(expected)


def test_the_least_p_is_that_of_differences_of_one_sign_and_of_one_pair_or_over_40_there_is_none():
    for n in (2, 3, 5, 6, 10, 40):
        pair = stats.paired(series(range(1, n + 1)), series([0] * n))
        assert pair.p == pytest.approx(pair.least_p) == pytest.approx(2 / 2**n)
    for n in (1, 41):
        pair = stats.paired(series(range(1, n + 1)), series([0] * n))
        assert np.isnan([pair.p, pair.least_p]).all()
    assert stats.holm([0.01, pair.p, 0.02]) == pytest.approx([0.03, pair.p, 0.04], nan_ok=True)
    assert stats.sign_flip_p(np.zeros(4)) == 1
    assert stats.sign_flip_p(np.array([0.1, 0.2, 0.3])) == 2 / 2**3, "added in another order, 0.6 is less"


def test_holm_by_hand():
    # In order: 0.005 x 4, 0.01 x 3, 0.03 x 2, then 0.04 x 1, which may not be under the one before.
    assert stats.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert stats.holm([0.5, 0.6]) == [1.0, 1.0]
    assert stats.holm([]) == []


def test_noise_is_pooled_over_rows_as_a_two_way_layout_by_hand():
    # Row means 2, 5, 5, seed means 3, 5, grand mean 4: residuals 1, 0, 1, four squares of 1 over 2 degrees of freedom.
    rows = [series([2.0, 2.0]), series([4.0, 6.0]), series([3.0, 7.0])]
    noise = stats.pooled(rows)
    assert (noise.std, noise.df) == (pytest.approx(np.sqrt(2)), 2)
    pair = stats.paired(rows[1], rows[0])
    half = scipy_stats.t.ppf(0.975, 2) * np.sqrt(2) * np.sqrt(2 / 2)
    assert noise.interval(pair) == Interval(pytest.approx(3 - half), pytest.approx(3 + half))
    quantiles = scipy_stats.t.ppf(0.975, 2) + scipy_stats.t.ppf(0.8, 2)
    assert noise.detectable(8) == pytest.approx(quantiles * np.sqrt(2) * np.sqrt(2 / 8))
    assert stats.detectable(3, noise.interval(pair)) == pytest.approx(quantiles * np.sqrt(2))


def test_one_degree_of_freedom_is_enough_to_pool():
    noise = stats.pooled([series([1.0, 2.0]), series([4.0, 9.0])])  # differences 3 and 7, of standard deviation sqrt(8)
    assert (noise.std, noise.df) == (pytest.approx(2.0), 1)


def test_pooled_over_two_rows_it_is_the_paired_t_test_over_common_seeds():
    ours, theirs = series(RNG.normal(1, size=6), [0, 1, 2, 3, 4, 9]), series(RNG.normal(size=6), [0, 1, 2, 3, 4, 7])
    noise, pair = stats.pooled([ours, theirs]), stats.paired(ours, theirs)
    expected = scipy_stats.ttest_rel(ours[:5], theirs[:5])
    assert (noise.df, noise.p(pair)) == (4, pytest.approx(expected.pvalue))
    assert noise.interval(pair) == Interval(*map(pytest.approx, expected.confidence_interval(0.95)))
    assert stats.pooled([ours]) is stats.pooled([]) is stats.pooled([ours, ours]) is None


def test_pairs_are_those_of_one_seed():
    ours, theirs = series([3.0, 1.0, 7.0, 90.0], [2, 0, 1, 7]), series([0.5, 5.0, 1.0, 10.0], [0, 1, 2, 5])
    pair = stats.paired(ours, theirs)
    assert (pair.n, pair.mean) == (3, pytest.approx((0.5 + 2.0 + 2.0) / 3))
    assert stats.paired(series([1.0], [0]), series([1.0], [1])) is None
    assert stats.paired(series([1, 2]), series([0, 0])).interval is None
    assert stats.sample([5.0]) == stats.Sample(1, 5.0, None, None)
