"""Runs that are evaluated on a validation part, and runs whose training images are redrawn by seed."""

from __future__ import annotations

import json

import pytest

from benchmark.grids.schema import Cell
from benchmark.records.record import RunRecord, from_bytes, to_bytes
from benchmark.records.store import Store
from benchmark.spec import DatasetSpec, RunSpec
from initializers.errors import VitinitError
from runners.basics.environment import code
from runners.basics.setting import Execution, Setting
from runners.basics.stop import Stop
from runners.loaders import open_data
from runners.one_run.carry_out import carry_out
from runners.one_run.reproduce import compare
from tests.runners.small_run import THREAD, spec


def run(root, one: RunSpec) -> RunRecord:
    setting = Setting(root, "tiny", root, Execution("cpu", THREAD, "inline"), code(), probes=False)
    outcome = carry_out(Cell("Kaiming uniform", one), setting, Stop())
    assert isinstance(outcome, RunRecord)
    return outcome


def on(**fields) -> DatasetSpec:
    return DatasetSpec(name="digits", train_size=100, **fields)


@pytest.mark.usefixtures("one_thread")
def test_a_record_says_what_it_was_evaluated_on(tmp_path):
    test, val = (run(tmp_path, spec(dataset=on(val_size=77, evaluate_on=split))) for split in ("test", "val"))
    assert (test.dataset.test, test.dataset.val) == (360, None)
    assert (val.dataset.test, val.dataset.val) == (None, 77)
    assert all(row.val_top1 is None and row.test_top1 is not None for row in test.history)
    assert all(row.test_top1 is None and row.test_loss is None and row.val_top1 is not None for row in val.history)
    assert round(val.score * 77 / 100, 6).is_integer(), "a share of 77 images"
    assert test.weights == val.weights, "looking elsewhere changes nothing"
    assert from_bytes(to_bytes(val)) == val
    content = json.loads(val.model_dump_json())
    content["history"][-1]["test_top1"] = content["history"][-1].pop("val_top1")
    with pytest.raises(ValueError, match="test_top1"):
        RunRecord.model_validate_json(json.dumps(content))
    whole = Store(tmp_path).outcome("tiny", val.run_id)
    assert whole.score == val.score


@pytest.mark.usefixtures("one_thread")
def test_redrawn_images_are_paired_across_initialisers(tmp_path):
    redrawn = on(train_draw="seed")
    rows = ("kaiming_uniform", "trunc_normal")
    found = {
        (base, seed): run(tmp_path, spec(dataset=redrawn, base={"name": base}, seed=seed))
        for base in rows
        for seed in (0, 1)
    }
    checksums = {key: record.dataset.checksum for key, record in found.items()}
    assert checksums["kaiming_uniform", 0] == checksums["trunc_normal", 0]
    assert checksums["kaiming_uniform", 1] == checksums["trunc_normal", 1]
    assert checksums["kaiming_uniform", 0] != checksums["kaiming_uniform", 1]
    again = run(tmp_path / "again", spec(dataset=redrawn, seed=1))
    assert compare(found["kaiming_uniform", 1], again).equal


def test_ffcv_refuses_what_no_file_of_it_holds(tmp_path):
    for dataset in (on(val_size=10), on(train_draw="seed")):
        with pytest.raises(VitinitError, match="--loader resident"):
            open_data(dataset, 8, tmp_path, "ffcv")
