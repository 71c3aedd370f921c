"""Stopped after every epoch or while it evaluates, and resumed in the same process: the same bits, on a GPU as well."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import torch
from PIL import Image

from benchmark.grids.schema import Cell
from benchmark.records.store import Store
from benchmark.spec import DatasetSpec, InitializerSpec
from runners.basics.environment import set_flags
from runners.basics.setting import Event, Execution, Interval, Setting
from runners.basics.stop import Stop, Stopped
from runners.loaders.decoded import DecodedLoader
from runners.one_run import claims
from runners.one_run.carry_out import carry_out
from tests.faults.harness import assert_same, cells, stopped_after
from tests.runners.small_run import DEVICES, spec


@pytest.fixture(autouse=True)
def _flags_as_before():
    threads = torch.get_num_threads()
    yield
    set_flags(Execution(device="cpu", threads=threads, executor="inline"))


def setting(root, device: str) -> Setting:
    execution = Execution(device=device, threads=1, executor="inline", deterministic=True)
    return Setting(root, "faults", root, execution, {}, Interval(steps=2), keep_weights=True)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("number", [0, 5, 10, 3])
def test_stopped_after_every_epoch_and_at_every_evaluation_it_ends_with_the_same_bits(
    tmp_path, number, device, monkeypatch
):
    """Dropout augmented, a ConViT in bf16, frozen queries of a base in fp16, a ConvMixer."""
    cell = cells(tmp_path, epochs=3)[number]
    if number == 10:  # what a base keeps from training stays so
        base = InitializerSpec(name="moco_v3", params={"stop_grad_conv1": True})
        cell = replace(cell, spec=cell.spec.model_copy(update={"base": base}))
    whole, resumed = setting(tmp_path / "whole", device), setting(tmp_path / "resumed", device)
    carry_out(cell, whole, Stop())
    batches, stops = DecodedLoader.held_out, [Stop()]

    def first_stopped(self):
        for number, batch in enumerate(batches(self)):
            if number == 0 and len(stops) % 2:
                stops[-1].request("a test")
            yield batch

    monkeypatch.setattr(DecodedLoader, "held_out", first_stopped)
    for _ in range(5):  # at the evaluation of an epoch, and once it is done
        with pytest.raises(Stopped):
            carry_out(cell, resumed, stops[-1], lambda event: stops[-1].request("a test") if event.epoch else None)
        stops.append(Stop())
    monkeypatch.undo()
    carry_out(cell, resumed, Stop())
    assert_same(whole, resumed, cell)
    assert len(Store(resumed.root).read("faults").done[cell.run_id].sessions) > 3


def test_a_run_whose_images_have_changed_fails_until_they_are_put_back(tmp_path):
    for number in range(50):
        path = tmp_path / f"pets/{'cat' if number % 2 else 'dog'}/{number:02}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8), (5 * number, 9, 200 - number)).save(path)
    cell = Cell("folder", spec(dataset=DatasetSpec(name="folder", path=str(tmp_path / "pets"))))
    whole, resumed = setting(tmp_path / "whole", "cpu"), setting(tmp_path / "resumed", "cpu")
    carry_out(cell, whole, Stop())
    stopped_after(1, cell, resumed)
    kept = path.read_bytes()
    Image.new("RGB", (8, 8), (255, 255, 255)).save(path)
    failed = carry_out(cell, resumed, Stop())
    assert (failed.status, failed.error) == ("failed", "VitinitError")
    assert re.search(
        f"images have changed since .* put them back, or begin anew with --force {cell.run_id}", failed.message
    )
    path.write_bytes(kept)
    carry_out(cell, replace(resumed, retried={cell.run_id: failed.written}), Stop())
    assert_same(whole, resumed, cell)


def test_a_checkpoint_of_another_run_is_passed_over(tmp_path):
    mine, other = (Cell("small", spec(seed=seed)) for seed in (0, 1))
    whole, resumed = setting(tmp_path / "whole", "cpu"), setting(tmp_path / "resumed", "cpu")
    carry_out(mine, whole, Stop())
    stopped_after(1, other, resumed)
    claims.folder(resumed.root, "faults", other.run_id).rename(claims.folder(resumed.root, "faults", mine.run_id))
    said: list[Event] = []
    carry_out(mine, resumed, Stop(), said.append)
    assert_same(whole, resumed, mine)
    assert any(f"passed over: it belongs to run {other.run_id}" in event.trouble for event in said)
