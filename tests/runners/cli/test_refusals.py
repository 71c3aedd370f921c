"""Bad input is one line that says what is wrong and what is allowed, before anything begins."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from tests.processes import ROOT
from tests.runners.cli.test_cli import TINY, changed, write
from vitinit.benchmark.records.store import Store

pytestmark = pytest.mark.usefixtures("undisturbed")


@pytest.fixture
def error(vitinit):
    """Run the command line in the test's folder; return the one line that it prints as an error."""

    def run(*arguments: object) -> str:
        code, _, err = vitinit(*arguments)
        assert (code, err[:7], err.count("\n")) == (2, "error: ", 1), err
        return err

    return run


def test_what_is_no_image_of_a_folder_is_counted_by_kind_and_val_as_the_test_split_is_said(vitinit):
    for name in ("pets/cat", "pets/dog", "split/train/a", "split/train/b", "split/val/a", "split/val/b"):
        Path(name).mkdir(parents=True)
        for number in range(10):
            Image.new("RGB", (8, 8), (number, 0, 0)).save(f"{name}/{number}.png")
    for name in ("cat", "dog"):
        Path(f"pets/{name}/more").mkdir()
        for ending in (".gif", ".GIF", ".heic", ""):
            Path(f"pets/{name}/x{ending}").write_bytes(b"x")
        Path(f"pets/{name}/.hidden.gif").write_bytes(b"x")
    Path("pets/loose.png").write_bytes(b"x")
    printed = vitinit("plan", write(Path("pets.yaml"), changed(blocks__0__datasets=["folder:pets"])))[1]
    line = next(line for line in printed.splitlines() if line.startswith("folder:pets: "))
    assert "folder:pets: 11 left out: 4 .gif, " in line
    assert "images are .jpg, .jpeg, .png" in line
    halves = write(Path("split.yaml"), changed(blocks__0__datasets=["folder:split"], blocks__0__recipe__batch_size=4))
    assert "accuracy is measured on val" in vitinit("plan", halves)[1]
    Path("split/val").rename("split/test")
    assert "measured on val" not in vitinit("plan", halves)[1]


@pytest.mark.parametrize("words", ["plan", "status"])
def test_a_results_folder_that_is_not_there_is_said_but_for_the_default(vitinit, words):
    """A typo would read as lost results; a newcomer has none yet."""
    code, printed, _ = vitinit(words, "smoke", "--results", "nope")
    assert (code, "there is no folder nope yet, so nothing is recorded in it" in printed) == (0, True)
    assert not Path("nope").exists()
    Path("nope").mkdir()
    for more in ([], ["--results", "results/local"], ["--results", "nope"]):
        code, printed, _ = vitinit(words, "smoke", *more)
        assert (code, "there is no folder" in printed) == (0, False)


def test_a_record_that_cannot_be_read_is_neither_renamed_nor_trained_again(recorded, error, vitinit, monkeypatch):
    path, original = Store("results/local").write(recorded), Path.read_bytes

    def refused(file):
        if file.name == path.name:
            raise PermissionError(13, "Permission denied", str(file))
        return original(file)

    monkeypatch.setattr(Path, "read_bytes", refused)
    assert path.name in error("run", write(Path("tiny.yaml"), TINY))
    monkeypatch.setattr(Path, "read_bytes", original)
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]
    assert vitinit("status", "tiny.yaml")[0] == 0


@pytest.mark.parametrize("module", ["vitinit.runners.cli", "vitinit.analysis.tables"])
def test_a_deleted_working_folder_is_one_line(module):
    Path("gone").mkdir()
    code = "import sys, os, runpy; os.chdir('gone'); os.rmdir('../gone'); sys.argv = ['x', '--help']\n"
    code += f"runpy.run_module({module!r}, run_name='__main__')"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stderr.count("\n"), "deleted" in done.stderr) == (2, 1, True), done.stderr


@pytest.mark.long
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_an_output_that_is_full_or_closed_is_no_traceback():
    program, env = [sys.executable, "-m", "vitinit.runners.cli", "list"], {**os.environ, "PYTHONPATH": str(ROOT)}
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([*program, "recipes"], env=env, stdout=full, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (2, "error: cannot write: No space left on device\n")
    for words, code in (("recipes", 0), ("nope", 2)):  # as by `>&-`
        closed = {"stderr": subprocess.PIPE, "text": True, "preexec_fn": lambda: os.close(1)}
        done = subprocess.run([*program, words], env=env, **closed)
        assert (done.returncode, "Traceback" in done.stderr) == (code, False), done.stderr
