"""Whole studies as a user runs them: options in the record, missing datasets, the terminal."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torchvision
import yaml
from PIL import Image
from torchvision.datasets.utils import download_and_extract_archive

from tests.processes import ROOT
from vitinit.benchmark.datasets import registry
from vitinit.benchmark.records.maps import read_maps
from vitinit.benchmark.records.store import Store
from vitinit.benchmark.terminal import Terminal
from vitinit.runners.basics.environment import set_flags
from vitinit.runners.basics.setting import Execution
from vitinit.runners.cli import __main__ as entry

TINY = {
    "title": "tiny",
    "rows": {
        "Kaiming uniform": {"base": "kaiming_uniform"},
        "Mimetic": {"base": "kaiming_uniform", "method": "mimetic"},
    },
    "blocks": [
        {
            "datasets": [{"name": "digits", "train_size": 100}],
            "model": {"preset": "vit_micro", "image_size": 8, "patch_size": 2, "depth": 1},
            "recipe": {"name": "small", "epochs": 2},
            "seeds": [0],
        }
    ],
}


def changed(**paths):
    """TINY with values replaced; a__b__0__c names content["a"]["b"][0]["c"]."""
    grid = json.loads(json.dumps(TINY))
    for path, value in paths.items():
        *parents, last = [int(key) if key.isdigit() else key for key in path.split("__")]
        at = grid
        for key in parents:
            at = at[key]
        at[last] = value
    return grid


def write(path: Path, grid: object, **how: bool) -> str:
    path.write_text(yaml.safe_dump(grid, **how), encoding="utf-8")
    return str(path)


# Options of `vitinit run`, in records and beside them.


MINE = ("--only", "row=Kaiming*", "--executor", "inline")


@pytest.fixture(autouse=True)
def _flags_and_folder_as_before(undisturbed):
    yield
    set_flags(Execution("cpu", 1, "inline"))


def test_options_of_a_run_come_to_its_record(tmp_path, vitinit, monkeypatch):
    grid = write(tmp_path / "tiny.yaml", changed(blocks__0__recipe__epochs=3))
    saving = ("--checkpoint-minutes", "0", "--deterministic", "--loader", "resident", "--micro-batch", "16")
    measuring = ("--no-probes", "--keep-maps")
    code, out, err = vitinit("run", grid, *MINE, *saving, *measuring)
    assert code == 0, out + err
    (record,) = Store(tmp_path / "results/local").read("tiny").done.values()
    told = {"deterministic": True, "loader": "resident", "micro_batch": 16, "executor": "inline"}
    assert told.items() <= record.execution.items()
    assert record.probes == []
    maps = read_maps(tmp_path / "results/local", record)
    assert maps.epochs == (0, 3)
    assert maps.weights == record.weights


def test_missing_datasets_are_downloaded_and_those_that_cannot_be_are_skipped(tmp_path, vitinit, server, monkeypatch):
    pixels = np.random.default_rng(0).integers(0, 256, (20, 8, 8, 3), np.uint8)
    with zipfile.ZipFile(tmp_path / "served/EuroSAT.zip", "w") as packed:
        for number, image in enumerate(pixels):
            Image.fromarray(image).save(tmp_path / "one.png")
            packed.write(tmp_path / "one.png", f"2750/{number % 10}/{number}.png")

    def fetch(url: str, download_root: str, md5: str) -> None:
        download_and_extract_archive(f"{server}/{url.rpartition('/')[2]}", download_root)

    monkeypatch.setattr(torchvision.datasets.eurosat, "download_and_extract_archive", fetch)
    monkeypatch.setattr(torchvision.datasets.STL10, "url", f"{server}/none.tar.gz")
    monkeypatch.setitem(vars(registry.get("eurosat")), "images", (10, 10))
    content = changed(blocks__0__datasets=["eurosat", "stl10"], blocks__0__recipe__batch_size=4)
    grid = write(tmp_path / "tiny.yaml", content)
    code, out, err = vitinit("run", grid, *MINE)
    assert code == 0, out + err
    assert out.count("downloading ") == 2
    assert out.count("cannot download stl10 (") == 1
    assert "cannot download eurosat" not in out
    contents = Store(tmp_path / "results/local").read("tiny")
    assert [(record.spec.dataset.name, record.dataset.train) for record in contents.done.values()] == [("eurosat", 10)]
    (skipped,) = contents.skipped.values()
    assert skipped.spec.dataset.name == "stl10"
    assert "vitinit data get stl10" in skipped.reason


def test_without_what_the_command_needs_it_is_one_line(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "vitinit.runners.cli.main", None)
    for platform, said in (
        ("linux", "the command vitinit needs vitinit.runners.cli.main: pip install 'vitinit[benchmark]'"),
        ("win32", "the benchmark runs on Linux and macOS; on Windows in WSL"),
    ):
        monkeypatch.setattr(sys, "platform", platform)
        with pytest.raises(SystemExit, match="^2$"):
            entry.main()
        assert capsys.readouterr().err == f"error: {said}\n"


@pytest.mark.long
def test_what_the_encoding_of_a_terminal_lacks_is_a_question_mark_and_a_minus_stays_one(tmp_path):
    name = "初期化 −Größe"
    write(tmp_path / "tiny.yaml", changed(title=name, rows={name: {"base": "trunc_normal"}}), allow_unicode=True)
    run = ("-m", "vitinit.runners.cli", "run", "tiny.yaml", "--executor", "inline", "--no-probes")
    encoding = {"PYTHONIOENCODING": "latin-1", "LC_ALL": "C", "FORCE_COLOR": "1"}  # with the live display
    done = subprocess.run(
        [sys.executable, *run],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **encoding},
        capture_output=True,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert "??? -Größe" in done.stdout.decode("latin-1")


def test_a_line_is_folded_where_the_output_is_a_terminal_now(monkeypatch):
    """The console is made at import: what it prints to, and how wide that is, may be another later."""
    monkeypatch.delenv("COLUMNS", raising=False)
    terminal = Terminal()
    for is_terminal in (False, True, False):
        monkeypatch.setattr(sys.stdout, "isatty", lambda there=is_terminal: there)
        assert (terminal.room is not None) == is_terminal
