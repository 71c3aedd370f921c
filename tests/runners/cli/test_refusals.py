"""Bad input is one line that says what is wrong and what is allowed, before anything begins."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import ROOT
from tests.runners.cli.test_cli import TINY, write
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
