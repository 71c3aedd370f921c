"""Evaluating less often: the same training, and the same numbers where there are some."""

from __future__ import annotations

import json
from dataclasses import replace
from io import StringIO

import pytest
import torch
from pydantic import ValidationError
from rich.console import Console

from benchmark.grids.schema import Cell
from benchmark.models.build import build_model
from benchmark.records.epoch import EpochRow
from benchmark.records.record import RunRecord
from benchmark.records.store import Store, weights_path
from runners.basics.setting import Event
from runners.basics.stop import Stop
from runners.loaders import open_data
from runners.one_run.carry_out import carry_out
from runners.terminal.display import Display
from tests.faults.harness import assert_same, cells, row, setting, stopped_after

pytestmark = pytest.mark.usefixtures("one_thread")
EPOCHS = 5


def every(cell: Cell, epochs: int) -> Cell:
    recipe = cell.spec.recipe.model_copy(update={"evaluate_every": epochs})
    return replace(cell, spec=cell.spec.model_copy(update={"recipe": recipe}))


def test_fewer_evaluations_are_some_of_all_and_change_nothing_else(tmp_path):
    often = row("dropout", tmp_path, EPOCHS)
    seldom = every(often, 2)
    assert seldom.run_id != often.run_id, "the best epoch depends on how many there are to choose from"
    whole, resumed = setting(tmp_path / "whole"), setting(tmp_path / "resumed")
    rows = []
    stopped_after(3, seldom, resumed, lambda event: rows.append(event.epoch) if event.epoch else None)
    assert [row.test_top1 is None for row in rows] == [True, False, True]
    for cell, where in ((often, whole), (seldom, whole), (seldom, resumed)):
        carry_out(cell, where, Stop())
    assert_same(whole, resumed, seldom)

    done = Store(whole.root).read("faults").done
    all_rows, some_rows = done[often.run_id].history, done[seldom.run_id].history
    assert [row.train_loss for row in all_rows] == [row.train_loss for row in some_rows]
    assert done[often.run_id].weights == done[seldom.run_id].weights
    assert [row.epoch for row in some_rows if row.test_top1 is not None] == [2, 4, 5]
    for epoch in (2, 4, 5):
        first, second = all_rows[epoch - 1], some_rows[epoch - 1]
        assert (first.test_loss, first.test_top1) == (second.test_loss, second.test_top1)
    assert [probe.epoch for probe in done[seldom.run_id].probes] == [0, 2, 4, 5]
    before = {probe.epoch: probe.nonlocality for probe in done[often.run_id].probes}
    assert all(probe.nonlocality == before[probe.epoch] for probe in done[seldom.run_id].probes)
    best, top1 = done[seldom.run_id].best
    assert top1 == max(all_rows[epoch - 1].test_top1 for epoch in (2, 4, 5))
    assert best in (2, 4, 5)
    refuses_other_epochs(done[seldom.run_id])


def test_a_record_holds_which_test_images_are_correct(tmp_path):
    """Against the weights that were kept, evaluated one image at a time from the pixels on."""
    cell, where = row("dropout", tmp_path), setting(tmp_path)
    carry_out(cell, where, Stop())
    record = Store(tmp_path).read("faults").done[cell.run_id]
    opened = open_data(cell.spec.dataset, 8, tmp_path, "resident")
    held_out = opened.held_out
    model = build_model(cell.spec.model, 10).eval()
    model.load_state_dict(torch.load(weights_path(tmp_path, "faults", cell.run_id), weights_only=True))
    mean, std = (torch.tensor(each)[:, None, None] for each in (opened.mean, opened.std))
    expected = []
    with torch.inference_mode():
        for image, label in zip(held_out.images, held_out.labels, strict=True):
            expected.append(int(model(((image / 255 - mean) / std)[None]).argmax()) == int(label))
    assert record.correct_images == expected
    assert 100 * sum(expected) / 360 == record.score
    assert 0 < sum(expected) < 360
    assert len(record.correct) == 60  # 45 bytes


def refuses_other_epochs(record: RunRecord) -> None:
    for epoch, name, value in ((1, "test_top1", 50.0), (4, "test_loss", None), (5, "test_top1", None)):
        content = json.loads(record.model_dump_json())
        content["history"][epoch - 1][name] = value
        with pytest.raises(ValidationError, match=f"does not hold {name} of the epochs that are evaluated"):
            RunRecord.model_validate(content)


def test_progress_shows_the_latest_accuracy(tmp_path):
    cell = cells(tmp_path, EPOCHS)[0]
    texts = []
    with Display(Console(file=StringIO(), width=160)) as display:
        display.begin([cell], {cell.run_id: 1.0})
        display.start(cell)
        for epoch, top1 in ((1, None), (2, 41.25), (3, None)):
            loss = None if top1 is None else 1.0
            row = EpochRow(
                epoch=epoch, lr=0.1, train_loss=1.0, test_loss=loss, test_top1=top1, seconds=1, images_per_s=900
            )
            display.event(Event(cell.run_id, epoch=row))
            texts.append(display._progress.tasks[-1].fields["text"])
    assert texts == [
        "epoch 1/5, 900 images/s",
        "epoch 2/5, top-1 41.2%, 900 images/s",
        "epoch 3/5, top-1 41.2%, 900 images/s",
    ]
