"""Stopped after every epoch or while it evaluates, and resumed in the same process: the same bits, on a GPU as well."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest
import torch

from benchmark.grids.schema import Cell
from benchmark.records.store import Store
from benchmark.spec import InitializerSpec
from runners.basics.environment import set_flags
from runners.basics.setting import Event, Execution, Interval, Setting
from runners.basics.stop import Stop, Stopped
from runners.loaders.decoded import DecodedLoader
from runners.one_run.carry_out import carry_out
from tests.faults.harness import assert_same, cells

CUDA = pytest.param(
    "cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA GPU here")
)


@pytest.fixture(autouse=True)
def _flags_as_before():
    threads = torch.get_num_threads()
    yield
    set_flags(Execution(device="cpu", threads=threads, executor="inline"))


def setting(root, device: str) -> Setting:
    execution = Execution(device=device, threads=1, executor="inline", deterministic=True)
    return Setting(root, "faults", root, execution, {}, Interval(steps=2), keep_weights=True)


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


@pytest.mark.parametrize("device", ["cpu", CUDA])
@pytest.mark.parametrize("number", range(12))
def test_stopped_and_resumed_it_ends_with_the_same_bits(tmp_path, number, device):
    cell = cells(tmp_path, epochs=3)[number]
    whole, resumed = setting(tmp_path / "whole", device), setting(tmp_path / "resumed", device)
    carried_out(cell, whole, stop_after=99)
    carried_out(cell, resumed, stop_after=1)
    assert_same(whole, resumed, cell)
    assert len(Store(resumed.root).read("faults").done[cell.spec.run_id].sessions) > 1


def test_what_a_base_keeps_from_training_stays_so_when_it_is_resumed(tmp_path):
    cell = next(cell for cell in cells(tmp_path, epochs=2) if cell.row == "mimetic")
    base = InitializerSpec(name="moco_v3", params={"stop_grad_conv1": True})
    cell = replace(cell, spec=cell.spec.model_copy(update={"base": base}))
    whole, resumed = setting(tmp_path / "whole", "cpu"), setting(tmp_path / "resumed", "cpu")
    carried_out(cell, whole, stop_after=99)
    carried_out(cell, resumed, stop_after=1)
    assert_same(whole, resumed, cell)
    assert len(Store(resumed.root).read("faults").done[cell.spec.run_id].sessions) > 1


@pytest.mark.parametrize("device", ["cpu", CUDA])
@pytest.mark.parametrize("row", ["dropout", "convit", "convmixer"])
def test_stopped_at_every_evaluation_and_resumed_it_ends_with_the_same_bits(tmp_path, row, device, monkeypatch):
    cell = next(cell for cell in cells(tmp_path, epochs=3) if cell.row == row)
    whole, resumed = setting(tmp_path / "whole", device), setting(tmp_path / "resumed", device)
    carried_out(cell, whole, stop_after=99)
    batches, stops, evaluated = DecodedLoader.held_out, [Stop()], []

    def first_stopped(self):
        for number, batch in enumerate(batches(self)):
            if number == 0 and len(evaluated) % 2 == 0:
                stops[-1].request("a test")
            evaluated.append(number)
            yield batch

    monkeypatch.setattr(DecodedLoader, "held_out", first_stopped)
    while Store(resumed.root).outcome(resumed.study, cell.spec.run_id) is None:
        stops.append(Stop())
        with suppress(Stopped):
            carry_out(cell, resumed, stops[-1])
    assert len(stops) == 1 + 4, "each of three evaluations was begun twice"
    monkeypatch.undo()
    assert_same(whole, resumed, cell)
