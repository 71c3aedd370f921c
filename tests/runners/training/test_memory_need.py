"""The warning before a GPU is out of memory: its arithmetic, and that trying changes nothing."""

from __future__ import annotations

import re

import pytest
import torch

from tests.faults.harness import assert_same, cell_of, setting
from tests.pretended_gpu import pretended_gpu
from vitinit.benchmark.records.record import RunRecord
from vitinit.runners.basics.setting import Execution
from vitinit.runners.basics.stop import Stop
from vitinit.runners.one_run.carry_out import carry_out
from vitinit.runners.training import memory_need

GIB = 2**30


@pytest.mark.parametrize("fixed", [0, 1, 5])
@pytest.mark.parametrize("each", [0.01, 0.13, 2.0])
def test_the_micro_batch_that_is_named_fits_and_twice_as_many_do_not(fixed, each):
    def peak(images: int) -> int:
        return int((fixed + each * images) * GIB)

    capacity, beside = 16 * GIB, GIB
    usable = memory_need.USABLE * capacity - beside
    for images in (8, 9, 64, 512, 4096):
        text = memory_need.advice(peak, images, beside, capacity)
        assert bool(text) == (images > 8 and peak(images) > usable)
        if text:
            named = int(re.search(r"--micro-batch (\d+) would fit", text).group(1))
            assert named == 1 or peak(named) <= usable
            assert peak(2 * named) > usable
    assert "a batch_size of" in memory_need.advice(peak, 4096, beside, capacity, whole=True)


@pytest.mark.long
def test_a_run_that_will_not_fit_is_told_so_and_its_numbers_stay(tmp_path, monkeypatch):
    """14 images of 1 GiB each, and 8.5 GiB."""
    seen, said = [0], []

    def reset(device: object = None) -> None:
        seen[0] = 0

    def look(module: object, inputs: tuple) -> None:
        if type(module).__name__ == "PatchEmbed":
            seen[0] = max(seen[0], len(inputs[0]))

    cell = cell_of("dropout", tmp_path)
    places = [setting(tmp_path / name, execution=Execution("cuda", 1, "inline")) for name in ("enough", "too little")]
    hook = torch.nn.modules.module.register_module_forward_pre_hook(look)
    try:
        for place, capacity in zip(places, (100 * GIB, 17 * GIB // 2), strict=True):
            said.append([])
            with pretended_gpu():
                monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device=None, free=capacity: (free, free))
                monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", reset)
                monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device=None: seen[0] * GIB)
                record = carry_out(cell, place, Stop(), lambda event: said[-1].append(event.trouble))
                monkeypatch.undo()
            assert isinstance(record, RunRecord), record
    finally:
        hook.remove()
    told = ["a step of 14 images needs about 14.0 GiB, and the GPU has 8.5: --micro-batch 8 would fit"]
    assert [[text for text in texts if "GiB" in text] for texts in said] == [[], told]
    assert_same(*places, cell)
