"""Records of runs that are measured by mean IoU; those of before stay as they are."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.synthetic_masks import dense, history
from vitinit.benchmark.records.export import tables
from vitinit.benchmark.records.record import RunRecord, from_bytes, to_bytes
from vitinit.benchmark.records.store import Store


def content(record: RunRecord, **changes: Any) -> str:
    return json.dumps({**json.loads(record.model_dump_json()), **changes})


def test_a_record_comes_back_with_its_mean_iou_and_no_top1() -> None:
    record = dense("Mimetic", (30.123456789, 41.5))
    again = from_bytes(to_bytes(record))
    assert again == record
    assert (record.metric, record.score, record.best) == ("miou", 41.5, (2, 41.5))
    assert record.last.scored() == "mean IoU 41.5%"
    assert [row.test_top1 for row in record.history] == [None, None]


def test_what_does_not_fit_together_is_refused() -> None:
    first, last = history((30.0, 41.5))
    for rows in (
        history((30.0, 41.5), also={"test_top1": 50.0}),
        [first, *history((30.0, 41.5), metric="top1")[1:]],
        history((30.0, 41.5), on="val"),
        history((30.0, 100.5)),
        [first, {**last, "test_miou": None}],
    ):
        with pytest.raises(ValueError, match="history"):
            RunRecord.model_validate_json(content(dense("Mimetic", (30.0, 41.5)), history=rows))


def test_the_export_names_each_runs_metric(tmp_path) -> None:
    store = Store(tmp_path)
    store.write(dense("Mimetic", (30.0, 41.5)))
    (row,), epochs, _ = tables(store, ["masks"])
    assert (row["miou"], row["best_miou"], row["best_epoch"]) == (41.5, 41.5, 2)
    assert "top1" not in row
    assert [epoch["test_miou"] for epoch in epochs] == [30.0, 41.5]
