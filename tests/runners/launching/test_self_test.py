"""The self-test on this CPU."""

from __future__ import annotations

from itertools import islice

import pytest
import torch

from vitinit.runners.basics.environment import set_flags
from vitinit.runners.launching import self_test


@pytest.fixture(autouse=True)
def _flags_as_before():
    threads = torch.get_num_threads()
    yield
    set_flags(self_test.Execution("cpu", threads, "inline"))


def test_a_wrong_product_is_found_and_does_not_end_the_test(tmp_path, monkeypatch):
    monkeypatch.setitem(self_test.PRODUCT_ERROR, "bf16", 1e-4)  # bf16 keeps eight bits
    found = {tried.what: tried for tried in islice(self_test.self_test("cpu", tmp_path), 3)}
    results = {name: tried.result for name, tried in found.items()}
    assert results == {
        "product of matrices, fp32": "ok",
        "product of matrices, bf16": "failed",
        "product of matrices, fp16": "ok",
    }
    assert "1e-04 expected" in found["product of matrices, bf16"].said


@pytest.mark.long
def test_a_run_that_is_resumed_with_other_bits_fails(tmp_path, monkeypatch):
    runs = self_test._Runs(tmp_path, self_test.Execution("cpu", 1, "inline"))
    monkeypatch.setattr(self_test, "RECIPE", self_test.RECIPE.model_copy(update={"epochs": 2}))
    assert runs.resumed() == "the same bits"
    seeds = iter((1, 2))
    whole = self_test.RunSpec
    monkeypatch.setattr(self_test, "RunSpec", lambda **fields: whole(**{**fields, "seed": next(seeds)}))
    with pytest.raises(self_test._Wrong, match="differ"):
        runs.twice()
