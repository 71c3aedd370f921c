"""Records with several metrics, and tables and figures of another one than the main."""

import re

from synthetic_records import dense, done, respecified, with_metrics, write

from vitinit.analysis import frame
from vitinit.analysis.figures.__main__ import main as figures
from vitinit.analysis.figures.style import MARK, marked
from vitinit.analysis.tables.__main__ import main as tables


def test_attention_that_nothing_reads_is_marked_whatever_metric_is_shown_and_that_of_masks_is_read():
    record = with_metrics(done("ConViT"), top5=90.5)
    assert [marked([each]) for each in (record, record.by("top5"))] == [f" {MARK}"] * 2
    assert [marked([dense("Mimetic", [50.0], pool=pool)]) for pool in ("token", "avg")] == ["", ""]


def test_tables_and_figures_show_another_metric_or_the_averaged_weights_by_their_name(tmp_path):
    rows = {"Kaiming uniform": (50.0, 80.0, 2.0, 75.0), "Trunc normal": (60.0, 70.0, 9.0, 65.0)}
    for row, (top1, top5, error, averaged) in rows.items():
        for seed in range(3):
            metrics = {"top5": top5 + seed, "calibration_error": error + seed / 10}
            record = respecified(with_metrics(done(row, (10.0, top1), seed=seed), **metrics), recipe={"ema": 0.9})
            history = [
                epoch.model_copy(update={"ema_loss": 0.5, "ema_score": averaged - 20 * (2 - epoch.epoch)})
                for epoch in record.history
            ]
            write(tmp_path, record.model_copy(update={"history": history}))
    asked = f"--results {tmp_path} --table small --format markdown --out {tmp_path}/out --metric"
    for metric, row, words in (
        ("last", "Trunc normal", "Top-1 accuracy (%) on"),
        ("top5", "Kaiming uniform", "Top-5 accuracy (%) on"),
        ("calibration_error", "Kaiming uniform", "2.1"),  # the lower is bold
        ("ema_score", "Kaiming uniform", "op-1 accuracy of averaged weights"),
    ):
        assert tables(f"{asked} {metric}".split()) == 0
        text = (tmp_path / "out/small.md").read_text()
        assert re.findall(r"^\| ([A-Z][\w ]*?) *\|.*\*\*.*$", text, re.MULTILINE) == [row]
        assert words in text
    for metric in ("top5", "ema_score"):
        beside = f"--results {tmp_path} --metric {metric}".split()
        assert (figures(beside), tables(beside)) == (0, 0)
        assert (tmp_path / f"small/tables-{metric}").is_dir()
        assert list((tmp_path / f"small/figures-{metric}").glob("accuracy*"))
    runs = frame.load([tmp_path]).contents.done.values()
    assert {run.by("ema_score").best for run in runs} == {(2, 75.0), (2, 65.0)}
