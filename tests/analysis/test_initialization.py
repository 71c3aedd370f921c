"""The table of what initialisation does and costs, against numbers worked out by hand."""

from __future__ import annotations

import statistics

import pytest
from synthetic_records import solved, write

from vitinit.analysis.frame import load
from vitinit.analysis.tables.registry import build, names
from vitinit.analysis.tables.render import FORMATS, to_latex


def test_means_and_spreads_are_those_of_the_records(tmp_path):
    masses, seconds = [0.1, 0.2, 0.4], [1.0, 2.0, 6.0]
    runs = [solved("Imp.-3", seed, mass, s) for seed, (mass, s) in enumerate(zip(masses, seconds, strict=True))]
    study = load([write(tmp_path, *runs, solved("Mimetic", 0, None, 0.5))], "small")
    assert names(study) == ["small", "small_initialization"]
    table = build(study, "small_initialization")
    assert table.columns == [
        "cifar10: top-1 (%)",
        "cifar10: on target, pseudo-input (%)",
        "cifar10: on target, images (%)",
        "cifar10: norm of W_q",
        "cifar10: initialisation (ms)",
    ]
    ours = [table.cells["Imp.-3", column].ours for column in table.columns]
    assert [cell.mean for cell in ours] == pytest.approx([50, 70 / 3, 70 / 3, 2.5, 3000])
    spreads = [0, statistics.stdev([10, 20, 40]), statistics.stdev([10, 20, 40]), 0, statistics.stdev([1e3, 2e3, 6e3])]
    assert [cell.std for cell in ours] == pytest.approx(spreads)
    assert [cell.n for cell in ours] == [3] * 5
    assert table.cells["Mimetic", "cifar10: on target, images (%)"].ours is None, "it has no target"
    assert table.cells["Mimetic", "cifar10: initialisation (ms)"].ours.mean == 500
    for _, write_as in FORMATS.values():
        assert "500.00" in write_as(table) or ",500," in write_as(table)
    assert to_latex(table).count(r"\begin{table}") == 1, "five columns in one"


def test_a_study_without_targets_has_no_such_table(tmp_path):
    study = load([write(tmp_path, solved("Mimetic", 0, None, 0.5))], "small")
    assert names(study) == ["small"]
