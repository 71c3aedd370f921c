"""Whole studies as a user runs them: options in the record, missing datasets, the terminal."""

import os
import subprocess
import sys
from unittest.mock import MagicMock

import pytest
import yaml

from tests.benchmark.dataset_helpers import make_folder
from tests.processes import ROOT
from tests.runners.small_run import altered
from vitinit.benchmark.datasets import registry as datasets
from vitinit.benchmark.grids.grid import load
from vitinit.benchmark.records import store
from vitinit.benchmark.records.store import Store
from vitinit.benchmark.terminal import Terminal
from vitinit.initializers.errors import VitinitError, guarded
from vitinit.runners.basics.environment import set_flags
from vitinit.runners.basics.setting import Execution
from vitinit.runners.cli import __main__ as entry
from vitinit.runners.launching import launch
from vitinit.runners.launching.work import run_inline
from vitinit.runners.one_run import claims

TINY = yaml.safe_load("""
title: tiny
rows:
  Kaiming uniform: {base: kaiming_uniform}
  Mimetic: {base: kaiming_uniform, method: mimetic}
blocks:
- datasets: [{name: digits, train_size: 100}]
  model: {preset: vit_micro, image_size: 8, patch_size: 2, depth: 1}
  recipe: {name: small, epochs: 2}
  seeds: [0]
""")


def write(path, grid, **how):
    path.write_text(yaml.safe_dump(grid, **how), encoding="utf-8")
    return str(path)


# Options of `vitinit run`, in records and beside them.


MINE = "--only row=Kaiming* --executor inline --device cpu"


@pytest.fixture(autouse=True)
def _flags_as_before():
    yield
    set_flags(Execution("cpu", 1, "inline"))


def test_runs_beside_one_another_share_the_cores(tmp_path, vitinit, monkeypatch):
    monkeypatch.setattr(launch, "cores", lambda: 4)
    monkeypatch.setattr(launch, "run_locally", run_inline)  # processes take seconds to start
    how = "--executor local --workers 2 --device cpu --results out"
    assert vitinit("run", write(tmp_path / "tiny.yaml", TINY), how)[0] == 0
    done = Store("out").read("tiny").done.values()
    assert [(record.execution["threads"], record.environment["flags"]["deterministic"]) for record in done] == [
        (2, False),
        (2, False),
    ]


def test_missing_datasets_are_downloaded_and_those_that_cannot_be_are_skipped(tmp_path, vitinit, monkeypatch):
    def download(name, folder):
        if name == "stl10":
            raise VitinitError("cannot download stl10 (no network)")
        make_folder(folder / "eurosat/2750", dict.fromkeys("0123456789", 2))

    monkeypatch.setattr(datasets, "download", download)
    monkeypatch.setitem(vars(datasets.get("eurosat")), "images", (10, 10))
    recipe = {"name": "small", "epochs": 1, "batch_size": 4}
    block = TINY["blocks"][0] | {"datasets": ["eurosat", "stl10"], "recipe": recipe}
    grid = write(tmp_path / "tiny.yaml", TINY | {"blocks": [block]})
    code, out, err = vitinit("run", grid, MINE)
    assert code == 0, out + err
    assert out.count("downloading ") == 2
    assert out.count("cannot download stl10 (") == 1
    assert "cannot download eurosat" not in out
    contents = Store(tmp_path / "results/local").read("tiny")
    assert [(record.spec.dataset.name, record.dataset.train) for record in contents.done.values()] == [("eurosat", 10)]
    assert contents.skipped == {}, "another machine may have it"
    assert "skip stl10: " in out
    assert "vitinit data get stl10" in out


def test_without_what_the_command_needs_it_is_one_line(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "typer", None)
    for platform, said in (
        ("linux", "the command vitinit needs typer: in a clone, pip install '.[benchmark]'"),
        ("win32", "the benchmark runs on Linux and macOS; on Windows in WSL"),
    ):
        monkeypatch.setattr(sys, "platform", platform)
        with pytest.raises(SystemExit, match="^2$"):
            entry.main()
        assert capsys.readouterr().err == f"error: {said}\n"


@pytest.mark.long
def test_what_the_encoding_of_a_terminal_lacks_is_a_question_mark_and_a_minus_stays_one(tmp_path):
    name = "初期化 −Größe"
    write(tmp_path / "tiny.yaml", TINY | {"title": name, "rows": {name: {"base": "trunc_normal"}}}, allow_unicode=True)
    run = "-m vitinit.runners.cli run tiny.yaml --executor inline --no-probes"
    encoding = {"PYTHONIOENCODING": "latin-1", "LC_ALL": "C", "FORCE_COLOR": "1"}  # with the live display
    done = subprocess.run(
        [sys.executable, *run.split()],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **encoding},
        capture_output=True,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert "??? -Größe" in done.stdout.decode("latin-1")


@pytest.mark.parametrize(("ended", "code"), [(BrokenPipeError, 1), (KeyboardInterrupt, 130)])
def test_output_that_nobody_reads_any_more_and_ctrl_c_are_no_error(ended, code, monkeypatch, capsys):
    """As behind `| head`, and while a command imports."""
    monkeypatch.setattr(os, "dup2", lambda *_: None)
    assert (guarded(MagicMock(side_effect=ended)), capsys.readouterr().err) == (code, "")


def test_a_line_is_folded_where_the_output_is_a_terminal_now(monkeypatch):
    """The console is made at import: what it prints to, and how wide that is, may be another later."""
    monkeypatch.delenv("COLUMNS", raising=False)
    terminal = Terminal()
    for is_terminal in (False, True, False):
        monkeypatch.setattr(sys.stdout, "isatty", lambda there=is_terminal: there)
        assert (terminal.room is not None) == is_terminal


def test_a_record_that_cannot_be_read_is_neither_renamed_nor_trained_again(tmp_path, vitinit, recorded, monkeypatch):
    path, original = Store("results/local").write(recorded), store.read

    def refused(file, *limits):
        if file.name == path.name:
            raise PermissionError(13, "Permission denied", str(file))
        return original(file, *limits)

    grid = write(tmp_path / "tiny.yaml", TINY)
    monkeypatch.setattr(store, "read", refused)
    for line in (f"run {grid} {MINE}", f"plan {grid}", f"status {grid}"):
        code, _, error = vitinit(line)
        assert (code, path.name in error, error.count("\n")) == (2, True, 1)
    monkeypatch.setattr(store, "read", original)
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]
    done, to_do = load(grid).cells
    noted = altered(recorded, spec=done.spec.model_dump(mode="json"), notes=["goes on from epoch 2"])
    Store("results/local").write(noted)
    unfinished = path.parent / "unfinished" / to_do.run_id
    unfinished.parent.mkdir()
    unfinished.touch()
    code, out, _ = vitinit("status tiny")
    assert (code, "noted, 1 run: goes on from epoch 2" in out) == (0, True)
    assert f"to do, 1 run: results/local/tiny/unfinished/{unfinished.name} is no folder of a run: remove it" in out
    for user, said in ((0, "resumes from its"), (-2, "begins anew: its checkpoints are another user's")):
        monkeypatch.setattr(claims, "checkpoints", lambda folder, user=user: {folder: user})
        assert f"stopped, {said}" in vitinit("status tiny")[1]
