"""On a GPU: the same bits after a resume, and a second time, with --deterministic."""

from __future__ import annotations

import pytest
import torch

from benchmark.grid import Cell
from benchmark.store import Store
from runners.checkpoint import Interval
from runners.run import Event, Execution, Setting, carry_out, set_flags
from runners.stop import Stop, Stopped
from tests.faults.harness import assert_same, cells

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA GPU here")
CUDA = Execution(device="cuda", threads=1, executor="inline", deterministic=True)


@pytest.fixture(autouse=True)
def _flags_as_before():
    threads = torch.get_num_threads()
    yield
    set_flags(Execution(device="cpu", threads=threads, executor="inline"))


def setting(root) -> Setting:
    return Setting(root, "faults", root, CUDA, {}, Interval(steps=2), keep_weights=True)


def carried_out(cell: Cell, where: Setting, stop_after: int) -> None:
    """Stopped after every so many epochs, and taken up again."""
    seen = 0

    def on_event(event: Event) -> None:
        nonlocal seen
        seen += event.epoch is not None
        if event.epoch and seen % stop_after == 0:
            stop.request("a test")

    while Store(where.root).outcome(where.study, cell.spec.run_id) is None:
        stop = Stop()
        try:
            carry_out(cell, where, stop, on_event)
        except Stopped:
            continue


@pytest.mark.parametrize("number", range(9))
def test_stopped_and_resumed_on_a_gpu_it_ends_with_the_same_bits(tmp_path, number):
    cell = cells(tmp_path, epochs=4)[number]
    whole, resumed = setting(tmp_path / "whole"), setting(tmp_path / "resumed")
    carried_out(cell, whole, stop_after=99)
    carried_out(cell, resumed, stop_after=1)
    assert_same(whole, resumed, cell)
    assert len(Store(resumed.root).read("faults").done[cell.spec.run_id].sessions) > 1
