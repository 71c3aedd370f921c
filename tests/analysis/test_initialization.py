"""The table of what initialisation does and costs, against numbers worked out by hand."""

from __future__ import annotations

from synthetic_records import solved, write

from vitinit.analysis.frame import load
from vitinit.analysis.tables.registry import names


def test_a_study_without_targets_has_no_such_table(tmp_path):
    study = load([write(tmp_path, solved("Mimetic", 0, None, 0.5))], "small")
    assert names(study) == ["small"]
