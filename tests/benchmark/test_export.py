"""`vitinit store export`: a row a run and a row an epoch, beside the records themselves."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
from stored_records import failed, record, skipped
from typer.testing import CliRunner

from vitinit.benchmark.records.store import Store
from vitinit.runners.cli.records import store_app

EVIL = '\x1b]0;owned\x07\x1b[2J[red]x[/red]\r\n\u202etxt, "quoted" \\begin{x} %&_'


def test_tables_read_back_the_same_with_failed_and_skipped_runs(study: Path, tmp_path: Path) -> None:
    files, whole, out = Store(study.parent), record(row=EVIL), tmp_path / "out"
    files.write(whole)
    files.write(failed(record(2), f"first, line\n{EVIL}", execution={"device": "cuda"}, environment={"gpu": "H100"}))
    files.write(skipped(record(3), "no images; put 'a', \"b\" into c"))
    done = CliRunner().invoke(store_app, ["export", "--results", str(study.parent), "--out", str(out)])
    said = [f"{out}/runs.csv: 4 rows", f"{out}/epochs.csv: 11 rows"]
    assert (done.exit_code, done.output.splitlines()) == (0, said)
    read = pd.read_csv(out / "runs.csv", dtype=str, keep_default_na=False).set_index("run_id")
    rows: dict[str, Any] = read.to_dict("index")
    for run in (whole, record(1)):
        row, spec = rows[run.run_id], run.spec
        names = ("row", "status", "reason", "dataset.name", "execution.device", "environment.commit")
        expected = [run.row, "done", "", spec.dataset.name, "cpu", run.environment["commit"]]
        assert [row[name] for name in names] == expected
        numbers = [row[name] for name in ("top1", "best_top1", "best_epoch", "recipe.lr", "seconds")]
        epoch, best = run.best
        assert list(map(float, numbers)) == [run.score, best, epoch, spec.recipe.lr, run.seconds]
        assert json.loads(row["recipe.betas"]) == list(spec.recipe.betas)
    failure, skip = rows[record(2).run_id], rows[record(3).run_id]
    names = ("status", "reason", "execution.device", "environment.gpu", "top1")
    expected = ["failed", f"RuntimeError: first, line\n{EVIL}", "cuda", "H100", ""]
    assert [failure[name] for name in names] == expected
    assert (skip["status"], skip["reason"]) == ("skipped", "no images; put 'a', \"b\" into c")
    epochs = pd.read_csv(out / "epochs.csv").set_index("run_id").loc[whole.run_id]
    assert list(zip(epochs["epoch"], epochs["test_top1"], strict=True)) == list(whole.evaluated.items())
