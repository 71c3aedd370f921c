"""Records with several metrics, and tables and figures of another one than the main."""

from __future__ import annotations

import json
import re
from typing import Any

from synthetic_records import done

from tests.synthetic_masks import dense
from vitinit.analysis import frame
from vitinit.analysis.figures.__main__ import main as figures
from vitinit.analysis.tables.__main__ import main as tables
from vitinit.analysis.unread import last_is_unread
from vitinit.benchmark.records.record import RunRecord
from vitinit.benchmark.records.store import Store
from vitinit.benchmark.spec import RunSpec


def with_metrics(row: str, seed: int, top1: float, **metrics: float) -> RunRecord:
    """Two epochs; calibration is better before the last one."""
    record = done(row, (10.0, top1), seed=seed)
    content = json.loads(record.model_dump_json())
    content["history"][0]["metrics"] = {"calibration_error": 1.0, "top5": 30.0}
    content["history"][1]["metrics"] = metrics
    return RunRecord.model_validate_json(json.dumps(content))


def test_attention_that_nothing_reads_is_marked_whatever_metric_is_shown_and_that_of_masks_is_read() -> None:
    record = with_metrics("ConViT", 0, 50.0, top5=90.5)
    assert [last_is_unread(each) for each in (record, record.by("top5"))] == [True, True]
    assert [last_is_unread(dense("Mimetic", [50.0], pool=pool)) for pool in ("token", "avg")] == [False, False]


def test_tables_show_another_metric_by_its_name(tmp_path: Any, capsys: Any) -> None:
    store = Store(tmp_path)
    for seed in range(3):
        store.write(with_metrics("Kaiming uniform", seed, 50.0, top5=80.0 + seed, calibration_error=2.0 + seed / 10))
        store.write(with_metrics("Trunc normal", seed, 60.0, top5=70.0 + seed, calibration_error=9.0 + seed / 10))
    study = frame.load([tmp_path])
    asked = ["--results", str(tmp_path), "--study", study.name, "--all"]

    def bold(*words: str) -> tuple[str, str]:
        assert tables([*asked, "--table", "small", "--format", "markdown", "--out", str(tmp_path / "out"), *words]) == 0
        text = (tmp_path / "out/small.md").read_text()
        (row,) = re.findall(r"^\| ([A-Z][\w ]*?) *\|.*\*\*.*$", text, re.MULTILINE)
        return row, text

    row, text = bold()
    assert (row, "op-1" in text, "op-5" in text) == ("Trunc normal", True, False)
    row, text = bold("--metric", "top5")
    assert (row, "op-5" in text, "81.0" in text) == ("Kaiming uniform", True, True)
    row, text = bold("--metric", "calibration_error")
    assert (row, "2.1" in text, "highest" in text) == ("Kaiming uniform", True, False), "the lower is bold"
    beside = ["--results", str(tmp_path), "--metric", "top5"]
    assert (figures(beside), tables(beside)) == (0, 0)
    assert {path.name for path in (tmp_path / study.name).iterdir() if path.is_dir()} == {"figures-top5", "tables-top5"}
    assert list((tmp_path / study.name / "figures-top5").glob("accuracy*"))


def test_tables_and_figures_show_the_averaged_weights(tmp_path: Any) -> None:
    store = Store(tmp_path)
    for row, score, averaged in (("Kaiming uniform", 50.0, 70.0), ("Trunc normal", 60.0, 65.0)):
        for seed in range(2):
            content = json.loads(done(row, (10.0, score), seed=seed).model_dump_json())
            content["spec"]["recipe"]["ema"] = 0.9
            content["run_id"] = RunSpec.model_validate(content["spec"]).run_id
            for number, epoch in enumerate(content["history"]):
                epoch |= {"ema_loss": 0.5, "ema_score": averaged - 20 + 20 * number}
            store.write(RunRecord.model_validate_json(json.dumps(content)))
    study = frame.load([tmp_path])
    asked = ["--results", str(tmp_path), "--study", study.name, "--metric", "ema_score", "--out", str(tmp_path / "out")]
    assert tables([*asked, "--table", study.name, "--format", "markdown,csv"]) == 0
    text = (tmp_path / f"out/{study.name}.md").read_text()
    assert "op-1 accuracy of averaged weights" in text
    assert "| Kaiming uniform | 70.0 " in text
    assert {run.by("ema_score").best for run in study.contents.done.values()} == {(2, 70.0), (2, 65.0)}
    assert figures(asked) == 0
    assert list((tmp_path / "out").glob("accuracy*"))
