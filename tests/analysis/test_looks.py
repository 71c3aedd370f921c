"""Error and power of the planned looks of `vitinit rank`, by simulation with sign flips written anew."""

import itertools
import json
from contextlib import nullcontext

import numpy as np
import pandas as pd
import pytest

from vitinit.analysis import standing
from vitinit.analysis.comparison import unnamed
from vitinit.analysis.stats import sign_flip_p
from vitinit.benchmark.records.looks import DETECTABLE, PLAN, Looks, read
from vitinit.initializers.errors import VitinitError

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
        assert taken.p == pytest.approx(sign_flip_p(study))


def test_a_plan_that_can_decide_nothing_is_refused(tmp_path):
    sound = {"tier": "quick", "worth": 1.0, "seeds": [0, 1, 2], "plan": [(3, 0.05)]}
    for change in ({}, {"worth": 0}, {"plan": []}, {"plan": [(2, 0.05)]}, {"seeds": [-1]}):
        (tmp_path / "LOOKS").write_text(json.dumps(sound | change))
        with nullcontext() if not change else pytest.raises(VitinitError, match="does not hold looks of vitinit rank"):
            assert read(tmp_path) == Looks.model_validate(sound)
