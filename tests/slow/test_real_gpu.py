"""Runs on a real GPU: every family, repeats, both loaders, torch.compile, memory, runs beside one another."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.faults.harness import Kill, assert_same, attempt, cells, finish, setting
from tests.random_images import beton, random_data
from vitinit.benchmark.image_files.beton import ffcv_missing
from vitinit.benchmark.records.record import FailureRecord
from vitinit.benchmark.records.store import Store
from vitinit.benchmark.spec import Recipe
from vitinit.runners.basics.machine import lacks_compiler
from vitinit.runners.basics.setting import Execution
from vitinit.runners.basics.stop import Stop
from vitinit.runners.loaders import make_loader
from vitinit.runners.one_run.carry_out import carry_out

DEVICE = "cuda"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU: make test-gpu where torch finds one"),
]
GPU = ("--device", DEVICE, "--wait")
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


def recorded(folder: Path, study: str, field: str) -> dict[str, Any]:
    """A field of each record, by run_id."""
    contents = Store(folder).read(study)
    assert not contents.failed
    assert not contents.problems
    return {run_id: getattr(record, field) for run_id, record in contents.done.items()}


def test_every_family_trains_as_on_the_cpu(tmp_path):
    vitinit("run", "families-smoke", *GPU, "--results", "gpu", cwd=tmp_path)
    vitinit("run", "families-smoke", "--device", "cpu", "--wait", "--results", "cpu", cwd=tmp_path)
    there, here = (recorded(tmp_path / name, "families-smoke", "history") for name in ("gpu", "cpu"))
    for run_id, rows in here.items():
        assert there[run_id][-1].train_loss == pytest.approx(rows[-1].train_loss, rel=0.02)


def test_two_runs_at_once_are_those_one_after_the_other_and_are_reproduced_bitwise(tmp_path):
    run = ("run", "smoke", *GPU, "--executor", "local", "--deterministic", "--workers")
    for workers in (1, 2):
        vitinit(*run, workers, "--results", workers, cwd=tmp_path)
    assert recorded(tmp_path / "1", "smoke", "weights") == recorded(tmp_path / "2", "smoke", "weights")
    run_id, record = next(iter(Store(tmp_path / "1").read("smoke").done.items()))
    facts = record.environment
    assert (facts["gpu"], facts["cuda"]) == (torch.cuda.get_device_name(), torch.version.cuda)
    vitinit("reproduce", run_id, "--results", "1", cwd=tmp_path)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_a_run_that_was_killed_ends_with_the_same_bits(precision, compiled, tmp_path):
    """With augmentation, dropout and the scale of fp16."""
    if compiled and (lacking := lacks_compiler(DEVICE)):
        pytest.skip(lacking)
    cell = next(c for c in cells(tmp_path) if (c.row, c.spec.recipe.precision) == ("dropout", precision))
    execution = Execution(DEVICE, 1, "inline", deterministic=True, compiled=compiled)
    whole, killed = (setting(tmp_path / name, execution=execution) for name in ("whole", "killed"))
    finish(cell, whole)
    assert attempt(cell, killed, Kill("training", 9)) == -9
    finish(cell, killed)
    assert_same(whole, killed, cell)


@pytest.mark.skipif(bool(ffcv_missing()), reason=str(ffcv_missing()))
def test_both_loaders_give_the_same_images_and_no_batch_is_replaced_by_a_later_one(tmp_path):
    images, device = random_data(4096, 32), torch.device(DEVICE)
    how = Recipe.model_validate({"name": "t", "batch_size": 64, "lr": 1e-3, "hflip": 0.5, "crop_padding": 4})
    sources = beton(images, tmp_path), images
    ffcv, resident = (list(make_loader(data, how, 0, device).train(0)) for data in sources)
    assert len(ffcv) == 64
    for first, second in zip(ffcv, resident, strict=True):
        assert all(map(torch.equal, first, second))


def test_out_of_memory_is_said(tmp_path):
    rows = {"large": {"base": "kaiming_uniform", "model": {"preset": "vit_micro", "width": 2048, "depth": 8}}}
    torch.cuda.set_per_process_memory_fraction(2**29 / torch.cuda.get_device_properties(0).total_memory)
    try:
        where = setting(tmp_path, execution=Execution(DEVICE, 1, "inline"))
        failed = carry_out(cells(tmp_path, rows=rows)[0], where, Stop())
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert isinstance(failed, FailureRecord)
    assert "out of memory" in failed.message
