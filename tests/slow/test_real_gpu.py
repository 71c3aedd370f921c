"""Runs on a real GPU, through the command line: every family, repeats, runs beside one another."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from vitinit.benchmark.records.store import Store

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU: make test-gpu where torch finds one"),
]
GPU = ("--device", "cuda", "--wait")
ROOT = Path(__file__).parents[2]


def vitinit(*words: object, cwd: Path) -> str:
    """Output of a command that succeeds."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(
        [sys.executable, "-m", "vitinit.runners.cli", *map(str, words)],
        cwd=cwd,
        env=env,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def losses(folder: Path, study: str) -> dict[str, float]:
    contents = Store(folder).read(study)
    assert not contents.failed
    assert not contents.problems
    return {run_id: record.history[-1].train_loss for run_id, record in contents.done.items()}


def test_every_family_trains_as_on_the_cpu_and_two_runs_share_a_gpu(tmp_path):
    vitinit("run", "families-smoke", *GPU, "--executor", "local", "--workers", 2, "--results", "gpu", cwd=tmp_path)
    vitinit("run", "families-smoke", "--device", "cpu", "--wait", "--results", "cpu", cwd=tmp_path)
    there, here = (losses(tmp_path / name, "families-smoke") for name in ("gpu", "cpu"))
    assert there == pytest.approx(here, rel=0.02)


def test_micro_batches_give_the_same_numbers(tmp_path):
    plain = ("run", "smoke", *GPU, "--only", "row=Mimetic", "--executor", "inline")
    vitinit(*plain, "--results", "plain", cwd=tmp_path)
    vitinit(*plain, "--micro-batch", 16, "--results", "other", cwd=tmp_path)
    assert losses(tmp_path / "other", "smoke") == pytest.approx(losses(tmp_path / "plain", "smoke"), rel=1e-2)


def test_a_record_of_a_gpu_is_reproduced_bitwise_and_says_where_it_ran(tmp_path):
    vitinit("run", "smoke", *GPU, "--executor", "inline", "--deterministic", "--results", "results", cwd=tmp_path)
    for run_id, record in Store(tmp_path / "results").read("smoke").done.items():
        facts = record.environment
        assert facts["gpu"] == torch.cuda.get_device_name()
        assert facts["cuda"] == torch.version.cuda
        vitinit("reproduce", run_id, "--results", "results", cwd=tmp_path)
