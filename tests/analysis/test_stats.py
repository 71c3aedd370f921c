"""Statistics against scipy, hand calculation, and simulation; error and power of the looks of `vitinit rank`."""

import itertools
import json
from contextlib import nullcontext

import numpy as np
import pandas as pd
import pytest
from scipy import stats as scipy_stats

from vitinit.analysis import standing, stats
from vitinit.analysis.comparison import unnamed
from vitinit.benchmark.records.looks import DETECTABLE, PLAN, Looks, read
from vitinit.initializers.errors import VitinitError


def normal(**how):
    return np.random.default_rng(3).normal(**how)


def series(values):
    return pd.Series(values, dtype=float)


def test_the_least_p_is_that_of_differences_of_one_sign_and_of_two_pairs_or_over_40_there_is_none():
    for n in (3, 5, 6, 10, 40):
        assert stats.sign_flip_p(range(1, n + 1)) == pytest.approx(2 / 2**n)
    assert np.isnan([stats.sign_flip_p(range(1, n + 1)) for n in (2, 41)]).all()
    assert stats.holm([0.01, np.nan, 0.02]) == pytest.approx([0.03, np.nan, 0.04], nan_ok=True)
    assert stats.sign_flip_p(np.zeros(4)) == 1
    assert stats.sign_flip_p(np.array([0.1, 0.2, 0.3])) == 2 / 2**3, "added in another order, 0.6 is less"


def test_holm_by_hand():
    # In order: 0.005 x 4, 0.01 x 3, 0.03 x 2, then 0.04 x 1, which may not be under the one before.
    assert stats.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert stats.holm([0.5, 0.6]) == [1.0, 1.0]


def test_noise_is_pooled_over_rows_as_a_two_way_layout_by_hand_at_the_seeds_that_all_have():
    # Row means 2, 5, 5, seed means 3, 5, grand mean 4: residuals 1, 0, 1, four squares of 1 over 2 degrees of freedom.
    rows = {"a": series([2.0, 2.0]), "b": series([4.0, 6.0]), "c": series([3.0, 7.0, 90.0])}
    assert stats.pooled(pd.DataFrame(rows)) == (pytest.approx(np.sqrt(2)), 2)
    ours, theirs = map(series, normal(size=(2, 6)))
    std, df = stats.pooled(pd.DataFrame({"ours": ours, "theirs": theirs}))
    estimate = stats.Estimate(n=6, mean=(ours - theirs).mean(), std=std * np.sqrt(2), df=df)
    expected = scipy_stats.ttest_rel(ours, theirs)
    assert (df, estimate.t_test()) == (5, pytest.approx(expected.pvalue)), "of two rows it is the paired t test"
    assert (estimate.low, estimate.high) == pytest.approx(expected.confidence_interval(0.95))
    assert stats.pooled(pd.DataFrame({"ours": ours}))[1] == 0


def test_student_against_scipy_and_where_all_values_are_equal_up_to_rounding():
    x = normal(loc=1, size=5)
    expected = scipy_stats.ttest_1samp(x, 0)
    assert stats.student(x).t_test() == pytest.approx(expected.pvalue)
    assert (stats.student(x).low, stats.student(x).high) == pytest.approx(expected.confidence_interval(0.95))
    equal, two = stats.student([0.3, 0.3, 0.1 + 0.2]), stats.student([1.0, 2.0])
    assert np.isnan([equal.low, equal.t_test(), two.low, stats.student([5.0]).std]).all(), (
        "no interval without a spread"
    )


def test_the_smallest_effect_that_sign_flips_detect_has_one_sign_at_all_seeds_in_four_studies_of_five():
    x = normal(size=8)
    effect = stats.sign_flips_detect(x, 0.05 / 4)
    assert scipy_stats.norm.cdf(effect / x.std(ddof=1)) ** 8 == pytest.approx(0.8)
    assert stats.sign_flips_detect(x[:4], 0.05) == np.inf


# --- looks, with sign flips written anew ---


STUDIES = 4_000


def p_of(studies):
    """The exact two-sided p of every study, all sign patterns at once."""
    signs = np.array(list(itertools.product((1, -1), repeat=studies.shape[1] - 1)))
    sums = np.abs(np.hstack([np.ones((len(signs), 1)), signs]) @ studies.T)
    return np.asarray((sums >= np.abs(studies.sum(axis=1)) - 1e-9).mean(axis=0))


def shown(studies):
    """True where a difference is shown at one of the looks."""
    return np.any([p_of(studies[:, :n]) <= level for n, level in PLAN], axis=0)


def differences(effect, seed):
    """Method minus base and minus placebo, by seed, in standard deviations of such a difference."""
    ours, *others = np.random.default_rng(seed).standard_normal((3, STUDIES, 12))
    first, second = ((ours - theirs) / 2**0.5 + effect for theirs in others)
    return first, second


def test_no_symmetric_distribution_has_a_larger_error():
    """Counted: over all sign patterns of fixed sizes, also where the last four or one of them outweigh the rest."""
    signs = np.array(list(itertools.product((1.0, -1.0), repeat=12)))
    generator = np.random.default_rng(0)
    for scale in (np.ones(12), np.r_[np.ones(8), [100.0] * 4], np.r_[np.ones(11), 100.0], 2.0 ** np.arange(12)):
        assert shown(signs * scale * generator.uniform(0.5, 1.5, 12)).mean() <= 202 / 4096


def test_the_power_is_what_is_said():
    """Within three standard errors of 4,000 studies."""
    for effect, over_base, over_both in ((1.0, 0.864, 0.775), (DETECTABLE, 0.80, None)):
        first, second = differences(effect, 2)
        assert shown(first).mean() == pytest.approx(over_base, abs=0.02)
        if over_both:
            assert (shown(first) & shown(second)).mean() == pytest.approx(over_both, abs=0.02)


def test_the_product_decides_as_the_simulation_does():
    """The smallest gain worth having is tiny, so that no study stops for futility."""
    first, _ = differences(0.8, 3)
    for study, expected in zip(first[:200], shown(first[:200]), strict=True):
        taken = None
        for n, level in PLAN:
            taken = standing.judge(unnamed("", pd.Series(study[:n])), level, 1e-12, taken)
        assert (taken.says in ("gain", "loss")) == expected
        assert taken.p == pytest.approx(stats.sign_flip_p(study))


def test_a_plan_that_can_decide_nothing_is_refused(tmp_path):
    sound = {"tier": "quick", "worth": 1.0, "seeds": [0, 1, 2], "plan": [(3, 0.05)]}
    for change in ({}, {"worth": 0}, {"plan": []}, {"plan": [(2, 0.05)]}, {"seeds": [-1]}):
        (tmp_path / "LOOKS").write_text(json.dumps(sound | change))
        with nullcontext() if not change else pytest.raises(VitinitError, match="does not hold looks of vitinit rank"):
            assert read(tmp_path) == Looks.model_validate(sound)
