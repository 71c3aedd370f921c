"""`vitinit store export`: a row a run and a row an epoch, beside the records themselves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
from stored_records import REFERENCE, failed, record, skipped
from typer.testing import CliRunner

from tests.synthetic_masks import dense
from vitinit.benchmark.records.export import tables
from vitinit.benchmark.records.store import Store
from vitinit.runners.cli.store import store_app

EVIL = '\x1b]0;owned\x07\x1b[2J[red]x[/red]\r\n\u202etxt, "quoted" \\begin{x} %&_'


def test_tables_read_back_the_same_with_failed_and_skipped_runs(study: Path, tmp_path: Path) -> None:
    files = Store(study.parent)
    files.write(record(row=EVIL))
    files.write(failed(record(2), f"first, line\n{EVIL}", execution={"device": "cuda"}, environment={"gpu": "H100"}))
    files.write(skipped(record(3), "no images; put 'a', \"b\" into c"))
    done = CliRunner().invoke(store_app, ["export", "--results", str(study.parent), "--out", str(tmp_path / "out")])
    assert (done.exit_code, done.output.splitlines()) == (
        0,
        [f"{tmp_path}/out/runs.csv: 4 rows", f"{tmp_path}/out/epochs.csv: 11 rows"],
    )
    runs = pd.read_csv(tmp_path / "out/runs.csv", dtype=str, keep_default_na=False)
    by_csv: dict[str, Any] = runs.set_index("run_id").to_dict("index")
    for expected in (record(row=EVIL), record(1)):
        row, spec = by_csv[expected.run_id], expected.spec
        assert (row["row"], row["status"], row["reason"]) == (expected.row, "done", "")
        numbers = [row[name] for name in ("top1", "best_top1", "best_epoch", "recipe.lr", "seconds")]
        epoch, best = expected.best
        assert list(map(float, numbers)) == [expected.score, best, epoch, spec.recipe.lr, expected.seconds]
        assert json.loads(row["recipe.betas"]) == list(spec.recipe.betas)
        assert (row["dataset.name"], row["execution.device"]) == (spec.dataset.name, "cpu")
        assert row["environment.commit"] == expected.environment["commit"]
    failure, skip = by_csv[record(2).run_id], by_csv[record(3).run_id]
    assert failure["reason"] == f"RuntimeError: first, line\n{EVIL}"
    assert [failure[name] for name in ("execution.device", "environment.gpu", "top1")] == ["cuda", "H100", ""]
    assert (skip["status"], skip["reason"]) == ("skipped", "no images; put 'a', \"b\" into c")
    epochs = pd.read_csv(tmp_path / "out/epochs.csv").set_index("run_id").loc[record().run_id]
    assert epochs["epoch"].tolist() == [1, 2, 3, 4, 5, 6]
    assert epochs["test_top1"].tolist() == [epoch.test_top1 for epoch in record().history]


def test_a_run_on_masks_has_its_metric(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.write(dense("Mimetic", (30.0, 41.5)))
    (row,), epochs, _ = tables(store, ["masks"])
    assert (row["miou"], row["best_miou"], row["best_epoch"], "top1" in row) == (41.5, 41.5, 2, False)
    assert [epoch["test_miou"] for epoch in epochs] == [30.0, 41.5]


def test_no_column_is_of_a_tensor_layer_or_epoch() -> None:
    rows, *_ = tables(Store(REFERENCE[0].parents[1]), ["catalogue-small", "convit-ablation-small"])
    columns = {column for row in rows for column in row if not column.startswith("init.placebo.of.")}
    assert {column for column in columns if column.startswith("init.")} == {
        *("init.seconds", "init.cached", "init.images", "init.placebo.keep"),
        *(f"init.{on}.{number}" for on in ("pseudo_input", "real_images") for number in ("mse", "mass", "argmax")),
    }
    assert not {"probes", "masked", "sessions", "history", "method", "spec"} & columns
    of, keep = ("init.placebo.of.name", "init.placebo.keep")
    assert ("mimetic", "spectrum") in {(row[of], row[keep]) for row in rows if keep in row}
