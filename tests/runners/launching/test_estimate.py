"""Estimates of time, by records of runs like those to come."""

from pathlib import Path

import pytest
import yaml

from tests.processes import ROOT
from tests.runners.small_run import altered
from vitinit.benchmark.grids import grid
from vitinit.benchmark.records.store import Store
from vitinit.runners.basics import environment

CPUINFO = "vendor_id\t: V\ncpu family\t: 6\nmodel\t\t: 7\nmodel name\t: A\nstepping\t: 1\nflags\t\t: fpu\n\n"
CASES = yaml.safe_load(Path(__file__).with_name("estimates.yaml").read_text(encoding="utf-8"))
"""Fields of a second record that differ, and the time that a run should take by both."""
HERE = {"processor": "A", "cpu": {"model": "V 6 7 1"}}


@pytest.mark.parametrize(("differs", "seconds"), CASES, ids=str)
def test_records_of_the_same_work_on_the_same_processor_tell_the_time(vitinit, monkeypatch, tmp_path, differs, seconds):
    """One record took 30 s; the other 60 s, but was not of this work or not of this machine."""
    (tmp_path / "cpuinfo").write_text(CPUINFO)
    monkeypatch.setattr(environment, "CPUINFO", tmp_path / "cpuinfo")
    monkeypatch.setattr(environment, "GPU_FILES", ())
    records = Store(ROOT / "results/reference").read("small").done
    digits = [cell for cell in grid.load("small").cells if cell.spec.dataset.name == "digits"]
    for cell, took, changes in zip(digits, (30, 60), ({}, differs), strict=False):
        spec = cell.spec.model_dump(mode="json")
        spec["recipe"] |= changes.get("recipe", {})
        execution = {"device": "cpu", "threads": 1, **changes.get("execution", {})}
        environ = {**HERE, **changes.get("environment", {})}
        other = altered(records[cell.run_id], spec=spec, execution=execution, environment=environ, seconds=took)
        Store(tmp_path / "results/local").write(other)
    plan = "plan small --only row=Mimetic --seeds 3 --only"
    code, out, _ = vitinit(plan, "dataset=digits")
    assert (code, out.splitlines()[-1]) == (0, f"about {seconds}, one run at a time, by records of the same hardware")
    assert "about" not in vitinit(plan, "seed=3")[1], "of CIFAR-10 there is no record"
    (tmp_path / "cpuinfo").write_text("model name\t: A\n")
    assert "about" not in vitinit(plan, "dataset=digits")[1], "processors of one name may differ"
