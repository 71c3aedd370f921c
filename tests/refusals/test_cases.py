"""Refusals, in one line that says what is wrong, where, and what is allowed: the table in `cases.yaml`."""

from __future__ import annotations

from typing import Any

import pytest

from tests.golden.cli import PATH
from tests.refusals.doors import TABLE, answer

CASES = [(door, case) for door, cases in TABLE.items() for case in cases]


@pytest.mark.parametrize(("door", "case"), CASES, ids=[f"{door}-{str(case['input'])[:60]}" for door, case in CASES])
def test_it_is_refused(door: str, case: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", PATH)  # without a cluster
    for name in ("VITINIT_DATA", "VITINIT_PROFILE", "SLURM_JOB_ID"):
        monkeypatch.delenv(name, raising=False)
    assert {"input": case["input"], **answer(door, case["input"])} == case
