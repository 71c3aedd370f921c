"""Fixtures of the tests that train."""

import pytest
import torch

from tests.runners.small_run import THREAD, spec
from vitinit.benchmark.grids.schema import Cell
from vitinit.benchmark.records.record import RunRecord
from vitinit.benchmark.records.store import Store
from vitinit.runners.basics.environment import code
from vitinit.runners.basics.setting import Execution, Setting, Stop
from vitinit.runners.one_run.carry_out import carry_out


@pytest.fixture
def undisturbed(monkeypatch, tmp_path):
    """Runs set the number of threads; commands look for data and records in the current folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VITINIT_DATA", str(tmp_path / "no-data"))
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A run of this machine and this code."""
    root = tmp_path_factory.mktemp("recorded")
    threads = torch.get_num_threads()
    setting = Setting(root, "tiny", root, Execution("cpu", THREAD, "inline"), code())
    outcome = carry_out(Cell("Kaiming uniform", spec()), setting, Stop())
    torch.set_num_threads(threads)
    assert isinstance(outcome, RunRecord)
    return Store(root).outcome("tiny", outcome.run_id)


@pytest.fixture
def cluster_says(tmp_path, monkeypatch):
    """Commands of SLURM that print what a test wants: what cannot be had from a real cluster at will."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")

    def says(**commands):
        for name, text in commands.items():
            (folder / name).write_text(f"#!/bin/sh\n{text}\n")
            (folder / name).chmod(0o755)

    return says
