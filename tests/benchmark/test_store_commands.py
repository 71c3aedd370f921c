"""`vitinit store`: check a folder, export tables."""

from __future__ import annotations

import csv
import json
import os
import time
from pathlib import Path

import pandas as pd
from stored_records import EVIL, REFERENCE, WHOLE, failed, record, skipped
from typer.testing import CliRunner

from vitinit.benchmark.records.export import tables
from vitinit.benchmark.records.store import Store
from vitinit.benchmark.spec import Recipe
from vitinit.initializers.errors import VitinitError
from vitinit.runners.cli.store import store_app

# --- the command line ---


def call(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(store_app, [str(argument) for argument in arguments])
    if isinstance(result.exception, VitinitError):
        return 2, str(result.exception)
    return result.exit_code, result.output


def test_check_names_everything_that_is_wrong_in_every_study(study: Path) -> None:
    Store(study.parent).write(record(2, study="other"))
    (study / "a.json").write_bytes(b"")
    (study.parent / "other" / "b.json").write_bytes(b"{")
    (study.parent / "c.json").write_bytes(WHOLE)
    fresh, old, deep = study / ".d.json.1.2.tmp", study / ".e.json.1.2.tmp", study / "unfinished/x/.step.ckpt.1.2.tmp"
    deep.parent.mkdir(parents=True)
    for path in (fresh, old, deep):
        path.write_bytes(b"half")
    for path in (old, deep):
        os.utime(path, (time.time() - 3600,) * 2)
    before = sorted(str(path) for path in study.parent.rglob("*"))
    code, output = call("check", "--results", study.parent)
    assert code == 1
    assert "2 valid records, 5 invalid files" in output
    wrong = [line for line in output.splitlines() if line.startswith("invalid: ")]
    assert [any(str(path) in line for line in wrong) for path in (old, deep, fresh)] == [True, True, False]
    assert [any(f"{name}.json: has no digest" in line for line in wrong) for name in ("small/a", "other/b")] == [
        True
    ] * 2
    assert any(f"{study.parent / 'c.json'}: not read" in line for line in wrong)
    assert sorted(str(path) for path in study.parent.rglob("*")) == before


def test_export_quotes_what_needs_it_and_reads_back_the_same(study: Path, tmp_path: Path) -> None:
    files = Store(study.parent)
    files.write(record(row=EVIL))
    failure = failed(record(2), f"first, line\n{EVIL}")
    files.write(failure.model_copy(update={"execution": {"device": "cuda"}, "environment": {"gpu": "H100"}}))
    files.write(skipped(record(3), "no images; put 'a', \"b\" into c"))
    code, output = call("export", "--results", study.parent, "--out", tmp_path / "out")
    assert code == 0, output
    assert "runs.csv: 4 rows" in output
    with (tmp_path / "out/runs.csv").open(newline="", encoding="utf-8") as file:
        by_csv = {row["run_id"]: row for row in csv.DictReader(file)}
    for expected in (record(row=EVIL), record(1)):
        row = by_csv[expected.run_id]
        assert row["row"] == expected.row
        assert row["status"] == "done"
        assert float(row["top1"]) == expected.score
        assert float(row["best_top1"]) == expected.best[1]
        assert float(row["recipe.lr"]) == expected.spec.recipe.lr
        assert json.loads(row["recipe.betas"]) == list(expected.spec.recipe.betas)
        assert row["dataset.name"] == expected.spec.dataset.name
        assert row["execution.device"] == "cpu"
        assert row["environment.commit"] == expected.environment["commit"]
    assert by_csv[record(2).run_id]["reason"] == f"RuntimeError: first, line\n{EVIL}"
    assert [by_csv[record(2).run_id][name] for name in ("execution.device", "environment.gpu")] == ["cuda", "H100"]
    assert by_csv[record(3).run_id]["status"] == "skipped"
    assert by_csv[record(3).run_id]["top1"] == ""
    epochs = pd.read_csv(tmp_path / "out/epochs.csv")
    assert len(epochs) == len(record().history) + len(record(1).history)
    assert epochs[epochs.run_id == record().run_id].test_top1.tolist() == [e.test_top1 for e in record().history]


def test_a_row_has_a_column_for_each_field_of_its_spec_and_none_for_each_tensor_layer_or_epoch() -> None:
    store = Store(REFERENCE[0].parents[1])
    rows, *_ = tables(store, ["catalogue-small", "convit-ablation-small"])
    columns = {column for row in rows for column in row}
    assert {f"recipe.{name}" for name in Recipe.model_fields} - {"recipe.optimizer", "recipe.schedule"} <= columns
    assert {column for column in columns if column.startswith("init.")} == {
        *("init.seconds", "init.cached", "init.images"),
        *(f"init.{on}.{number}" for on in ("pseudo_input", "real_images") for number in ("mse", "mass", "argmax")),
        *(column for column in columns if column.startswith("init.placebo.of.")),
        "init.placebo.keep",
    }
    assert not {"probes", "masked", "sessions", "history"} & columns
    record = next(done for done in store.read("catalogue-small").done.values() if done.init.placebo)
    (row,) = (row for row in rows if row["run_id"] == record.run_id)
    assert (row["init.placebo.of.name"], row["init.placebo.keep"]) == (record.init.placebo.of["name"], "spectrum")
