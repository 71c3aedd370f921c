"""Refusals, in one line that says what is wrong, where, and what is allowed: the table in `cases.yaml`."""

import pytest

from tests.refusals.doors import TABLE, answer
from tests.surroundings import programs

CASES = [(door, case) for door, cases in TABLE.items() for case in cases]


@pytest.mark.parametrize(("door", "case"), CASES, ids=[f"{door}-{str(case['input'])[:60]}" for door, case in CASES])
def test_it_is_refused(door, case, monkeypatch):
    monkeypatch.setenv("PATH", programs())  # without a cluster
    assert {"input": case["input"], **answer(door, case["input"])} == case
