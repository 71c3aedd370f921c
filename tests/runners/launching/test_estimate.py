"""Estimates of time, by records of runs like those to come."""

from pathlib import Path

import pytest
import yaml

from tests.processes import ROOT
from tests.runners.small_run import altered
from vitinit.benchmark.grids import grid
from vitinit.benchmark.records.store import Store

CASES = yaml.safe_load(Path(__file__).with_name("estimates.yaml").read_text(encoding="utf-8"))
"""Fields of a second record's recipe that differ, and the time that a run should take by both."""


@pytest.mark.parametrize(("differs", "seconds"), CASES, ids=str)
def test_records_of_the_same_work_tell_the_time(vitinit, tmp_path, differs, seconds):
    """One record took 30 s; the other 60 s, but was not of this work."""
    records = Store(ROOT / "results/reference").read("small").done
    digits = [cell for cell in grid.load("small").cells if cell.spec.dataset.name == "digits"]
    for cell, took, recipe in zip(digits, (30, 60), ({}, differs), strict=False):
        spec = cell.spec.model_dump(mode="json")
        spec["recipe"] |= recipe
        Store(tmp_path / "results/local").write(altered(records[cell.run_id], spec=spec, seconds=took))
    plan = ("plan", "small", "--only", "row=Mimetic", "--seeds", "3", "--only")
    assert vitinit(*plan, "dataset=digits")[1].endswith(
        f"about {seconds}, one run at a time, where its records were made\n"
    )
    assert "about" not in vitinit(*plan, "seed=3")[1], "of CIFAR-10 there is no record"
