"""A newcomer's own method or dataset has a bug: what is said, where it is, and what goes on all the same."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from benchmark.datasets import registry
from benchmark.datasets.dataset import InMemory
from benchmark.records.store import Store
from initializers.errors import VitinitError, located
from tests.runners.cli.test_cli import changed, write

WRONG = """
from typing import ClassVar

import torch

from initializers.registry import Initializer


class Wrong(Initializer):
    name: ClassVar[str] = "wrong"
    touches: ClassVar[tuple[str, ...]] = ("*.qkv.weight",)

    def apply(self, model, generator, progress):
        torch.zeros(2) @ torch.zeros(3)  # the 14th line
"""


def test_a_failure_says_its_line_and_how_to_see_the_traceback_and_is_left_alone_after(tmp_path, here, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "wrong.py").write_text(WRONG)
    rows = {"Base": {"base": "trunc_normal"}, "Wrong": {"base": "trunc_normal", "method": "wrong:Wrong"}}
    grid = write(tmp_path / "tiny.yaml", changed(rows=rows, blocks__0__recipe__epochs=1))
    arguments = ("run", "tiny.yaml", "--executor", "inline", "--no-probes")
    code, first = here(*arguments)
    assert code == 1
    assert "(wrong.py:14)" in first
    assert "after 1 epoch," in first
    assert "1 run finished, 1 failed" in first
    (failed,) = Store(tmp_path / "results/local").read("tiny").failed.values()
    assert f"see: vitinit show {failed.run_id}: the traceback" in first
    shown = here("show", failed.run_id)[1].splitlines()
    lines = failed.traceback.splitlines()
    assert shown[-len(lines) :] == lines

    code, again = here(*arguments)
    assert code == 1
    left = again.index("1 run failed before and left alone; to run again: --retry-failed")
    assert left < again.index("nothing to do: 1 recorded, 1 failed") < again.index("analysis.tables --study tiny")
    assert not re.search(r"0/0|finished", again)
    assert here("run", grid, *arguments[2:], "--only", "row=Base")[1].count("nothing to do: 1 recorded") == 1


def test_the_line_of_an_error_in_the_standard_library_is_that_of_its_caller():
    try:
        subprocess.run(["no such program"], check=True)
    except OSError as error:
        line = sys.exc_info()[2].tb_lineno
        assert located(error) == f"{error} (test_broken_code.py:{line})"
    assert located(ValueError("never raised")) == "never raised"


DATASET = """
import numpy as np

from benchmark.datasets.dataset import InMemory


class Mine(InMemory):
    def read(self, data_dir):
        images = np.zeros((20, 3, 8, 8), np.uint8)
        labels = np.arange(20) % 2
        {line}
        return (images, labels), (images, labels), ("dark", "bright")
"""


def mine(line: str, images=(20, 20)) -> InMemory:
    space: dict = {}
    exec(compile(DATASET.format(line=line), "/home/newcomer/mine.py", "exec"), space)
    return space["Mine"](name="mine", images=images, classes=2)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (
            "images = images.astype(np.float32)",
            "training images of float32 20 x 3 x 8 x 8; they are uint8, N x 3 x S x S",
        ),
        ("images = images[:, 0]", "training images of uint8 20 x 8 x 8;"),
        ("images = images[..., :4]", "training images of uint8 20 x 3 x 8 x 4;"),
        ("labels = labels / 2", "training labels of float64 20; they are integers, N"),
        ("labels = labels[:7]", "training labels of int64 7;"),
        ("labels = labels + 1", "training labels from 1 to 2; of 2 classes they are 0 to 1"),
        ("labels = labels - 1", "training labels from -1 to 0;"),
        ("images, labels = images[:19], labels[:19]", "19 training images; its `images` says 20"),
    ],
)
def test_arrays_that_no_dataset_has_are_one_line_with_its_name(line, says, tmp_path):
    with pytest.raises(VitinitError, match=r"^dataset mine: its `read` gives ") as refused:
        mine(line)._splits(tmp_path)
    assert says in str(refused.value)
    mine("")._splits(tmp_path)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("images = images.astype(np.float32)", "dataset mine: its `read` gives training images of float32"),
        ("images = images.no_such_thing", "'no_such_thing' (mine.py:11)"),
    ],
)
def test_a_bug_in_a_dataset_fails_its_runs_and_no_others(line, says, tmp_path, here, monkeypatch):
    monkeypatch.setitem(registry._found(), "mine", registry._Found(mine(line), "a test"))
    both = changed(blocks__0__datasets=["mine", {"name": "digits", "train_size": 100}], blocks__0__recipe__epochs=1)
    both["blocks"][0]["recipe"]["batch_size"] = 20
    write(tmp_path / "tiny.yaml", both)
    arguments = ("run", "tiny.yaml", "--executor", "inline", "--no-probes")
    code, out = here(*arguments)
    assert code == 1
    assert "2 runs finished, 2 failed" in out
    contents = Store(tmp_path / "results/local").read("tiny")
    assert {run.spec.dataset.name for run in contents.done.values()} == {"digits"}
    assert all(says in run.message for run in contents.failed.values())
    assert out.index("failed") < out.index("after 1 epoch"), "what fails at once comes first"

    write(tmp_path / "alone.yaml", {**both, "blocks": [{**both["blocks"][0], "datasets": ["mine"]}]})
    assert here("run", "alone.yaml", *arguments[2:])[0] == 2, "nothing can be read"
    assert not (tmp_path / "results/local/alone").exists()
