"""Everyday situations of a user: another data folder, a shared results folder, a pipe, a deleted folder."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from benchmark.records.store import Store
from runners.cli.options import NEVER_FOLDED
from tests.runners.cli.test_cli import TINY, changed, write

ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.usefixtures("undisturbed")
CIFAR = changed(
    blocks__0__datasets=["cifar10"], blocks__0__model={"preset": "vit_micro", "image_size": 32, "patch_size": 4}
)


def test_status_of_a_launched_study_needs_no_data_dir(vitinit):
    grid = write(Path("tiny.yaml"), CIFAR)
    assert "2 skip" in vitinit("status", grid)[1], "never launched: the data folder decides"
    Path("results/local/tiny").mkdir(parents=True)
    assert "2 to do" in vitinit("status", grid)[1], "launched, and no run was skipped for its data"
    assert "2 skip" in vitinit("plan", grid)[1], "what `run` would do now"


def test_a_record_that_cannot_be_read_is_neither_renamed_nor_trained_again(recorded, vitinit, monkeypatch):
    grid = write(Path("tiny.yaml"), TINY)
    path = Store("results/local").write(recorded)
    original = os.open

    def refused(name, *arguments, **more):
        if str(name).endswith(path.name):
            raise PermissionError(13, "Permission denied", str(name))
        return original(name, *arguments, **more)

    monkeypatch.setattr(os, "open", refused)
    exit_code, _, error = vitinit("run", grid)
    assert (exit_code, str(path.name) in error, error.count("\n")) == (2, True, 1)
    with pytest.raises(Exception, match="Permission denied"):
        Store("results/local").write(recorded)
    monkeypatch.setattr(os, "open", original)
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]
    assert vitinit("status", grid)[0] == 0


@pytest.mark.parametrize(
    "words", [("plan", "x" * 300), ("plan", "smoke", "--results", "x" * 300), ("status", "x" * 300 + ".yaml")]
)
def test_a_name_that_is_too_long_is_one_line(vitinit, words):
    exit_code, _, error = vitinit(*words)
    assert (exit_code, error.startswith("error: "), error.count("\n")) == (2, True, 1)


@pytest.mark.parametrize("module", ["runners.cli", "analysis.tables"])
def test_a_deleted_working_folder_is_one_line(module):
    Path("gone").mkdir()
    code = "import sys, os, runpy; os.chdir('gone'); os.rmdir('../gone'); sys.argv = ['x', '--help']\n"
    code += f"runpy.run_module({module!r}, run_name='__main__')"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert "deleted" in done.stderr


def test_show_is_a_screen_and_full_is_all(recorded, vitinit):
    Store("results/local").write(recorded)
    short, whole = (vitinit("show", recorded.run_id, *more)[1] for more in ((), ("--full",)))
    assert len(short.splitlines()) < 40 < len(whole.splitlines())
    assert recorded.run_id in short
    assert "history" not in short


def test_the_version_is_that_of_the_project(vitinit):
    line = next(line for line in (ROOT / "pyproject.toml").read_text().splitlines() if line.startswith("version"))
    assert vitinit("--version")[1] == f"vitinit {line.split(chr(34))[1]}\n"


def test_what_is_piped_is_not_folded(recorded):
    deep = Path("a" * 60) / ("b" * 60)
    (deep / "tiny").mkdir(parents=True)
    (deep / "tiny" / f"{'0' * 16}.json").write_text("{}")
    write(Path("tiny.yaml"), TINY)
    words = [sys.executable, "-m", "runners.cli", "status", "tiny.yaml", "--results", str(deep)]
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"} | {"PYTHONPATH": str(ROOT)}
    printed = subprocess.run(words, capture_output=True, text=True, env=environment, check=True).stdout
    assert f"{deep}/tiny/{'0' * 16}.json" in printed
    assert max(map(len, printed.splitlines())) < NEVER_FOLDED / 10, "titles are not centred in a line without an end"


def test_the_hours_of_a_model_that_was_timed_on_other_data_are_known(recorded, vitinit):
    Store("results/local").write(recorded)
    model = recorded.spec.model.model_dump(mode="json")
    rows = {"Kaiming uniform": {"base": "kaiming_uniform"}}
    block = {"datasets": ["digits"], "model": model, "recipe": {"name": "small", "epochs": 7}, "seeds": [0]}
    Path("mine.yaml").write_text(yaml.safe_dump({"title": "mine", "rows": rows, "blocks": [block]}))
    printed = vitinit("plan", "mine.yaml", "--estimate", "--device", "cpu")[1]
    assert "its model" in printed
    assert "unknown" not in printed


def test_val_as_the_test_split_is_said(vitinit):
    from PIL import Image

    for split in ("train", "val"):
        for name in ("a", "b"):
            folder = Path("images") / split / name
            folder.mkdir(parents=True)
            Image.new("RGB", (8, 8)).save(folder / "1.png")
    grid = write(Path("tiny.yaml"), changed(blocks__0__datasets=[f"folder:{Path('images').absolute()}"]))
    assert "accuracy is measured on val" in vitinit("plan", grid)[1]
    shutil.move("images/val", "images/test")
    assert "measured on val" not in vitinit("plan", grid)[1]
