"""bf16 against fp32: the same top-1 within the noise of seeds."""

from __future__ import annotations

import statistics

import pytest
from scipy import stats

from vitinit.benchmark.records.store import Store

pytestmark = pytest.mark.slow


GRID = """
title: Two precisions
rows:
  Kaiming uniform: {base: kaiming_uniform}
blocks:
  - datasets: [digits]
    model: {preset: vit_micro, image_size: 8, patch_size: 1}
    recipe: {name: small, epochs: 6, precision: fp32}
    seeds: [0, 1, 2, 3, 4]
  - datasets: [digits]
    model: {preset: vit_micro, image_size: 8, patch_size: 1}
    recipe: {name: small, epochs: 6, precision: bf16}
    seeds: [0, 1, 2, 3, 4]
"""


def test_bf16_reaches_the_top1_of_fp32_over_five_seeds(here, tmp_path, capsys):
    (tmp_path / "precisions.yaml").write_text(GRID)
    code, output = here("run", "precisions.yaml", "--executor", "local", "--results", "results")
    assert code == 0, output
    records = sorted(Store(tmp_path / "results").read("precisions").done.values(), key=lambda record: record.spec.seed)
    top1 = {p: [r.score for r in records if r.spec.recipe.precision == p] for p in ("fp32", "bf16")}
    differences = [second - first for first, second in zip(top1["fp32"], top1["bf16"], strict=True)]
    mean = statistics.mean(differences)
    low, high = stats.t.interval(0.95, len(differences) - 1, loc=mean, scale=stats.sem(differences))
    with capsys.disabled():
        print(f"\ntop-1 on digits: {top1}; bf16 minus fp32 {mean:.2f} points, 95 % interval {low:.2f} to {high:.2f}")
    assert len(differences) == 5
    assert low <= 0 <= high
    assert abs(mean) < statistics.stdev(top1["fp32"])
