"""Runs on a real GPU: kills, torch.compile, runs beside one another, both loaders, memory."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
import torch

from tests.faults.harness import assert_same, attempt, cell_of, cells, finish, kill_after_an_epoch, setting
from tests.random_images import beton, random_data
from vitinit.benchmark.image_files.beton import ffcv_missing
from vitinit.benchmark.spec import Recipe
from vitinit.runners.basics.environment import lacks_compiler
from vitinit.runners.basics.setting import Execution, Stop
from vitinit.runners.loaders.base import make_loader
from vitinit.runners.one_run.carry_out import carry_out

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA GPU here"),
]
GPU = Execution("cuda", 1, "inline", deterministic=True)


def test_runs_at_once_are_those_one_after_the_other_and_up_to_rounding_those_of_a_cpu(tmp_path):
    families = [cell_of(row, tmp_path) for row in ("mimetic", "convit", "convmixer")]
    once, alone = (setting(tmp_path / name, execution=GPU) for name in ("once", "alone"))
    with ThreadPoolExecutor() as pool:
        list(pool.map(partial(finish, where=once), families))
    for cell in families:
        ours, cpu = finish(cell, alone), finish(cell, setting(tmp_path / "cpu"))
        assert_same(once, alone, cell)
        assert ours.environment["gpu"] == torch.cuda.get_device_name()
        assert ours.history[-1].train_loss == pytest.approx(cpu.history[-1].train_loss, rel=0.02)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_a_run_that_was_killed_ends_with_the_same_bits(precision, compiled, tmp_path):
    """With augmentation, dropout and the scale of fp16."""
    if compiled and (lacking := lacks_compiler("cuda")):
        pytest.skip(lacking)
    cell = next(c for c in cells(tmp_path) if (c.row, c.spec.recipe.precision) == ("dropout", precision))
    execution = Execution("cuda", 1, "inline", deterministic=True, compiled=compiled)
    whole, killed = (setting(tmp_path / name, execution=execution) for name in ("whole", "killed"))
    finish(cell, whole)
    assert attempt(cell, killed, None, kill_after_an_epoch) == -9
    finish(cell, killed)
    assert_same(whole, killed, cell)


@pytest.mark.skipif(bool(ffcv_missing()), reason=str(ffcv_missing()))
def test_both_loaders_give_the_same_images_and_no_batch_is_replaced_by_a_later_one(tmp_path):
    images = random_data(4096, 32)
    how = Recipe.model_validate({"name": "t", "batch_size": 64, "lr": 1e-3, "hflip": 0.5, "crop_padding": 4})
    both = [
        list(make_loader(data, how, 0, torch.device("cuda")).train(0)) for data in (images, beton(images, tmp_path))
    ]
    for first, second in zip(*both, strict=True):
        assert all(map(torch.equal, first, second))


def test_out_of_memory_is_said(tmp_path):
    rows = {"large": {"base": "kaiming_uniform", "model": {"preset": "vit_micro", "width": 2048, "depth": 8}}}
    torch.cuda.set_per_process_memory_fraction(2**29 / torch.cuda.get_device_properties(0).total_memory)
    failed = carry_out(cells(tmp_path, rows=rows)[0], setting(tmp_path, execution=GPU), Stop())
    torch.cuda.set_per_process_memory_fraction(1.0)
    assert "out of memory" in failed.message
