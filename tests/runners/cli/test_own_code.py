"""A newcomer's own method or dataset: bugs and edits are said where they are, and what can goes on all the same."""

from __future__ import annotations

import hashlib
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
        assert located(error) == f"{error} (test_own_code.py:{line})"
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


NO_DATA = {
    "images = images.astype(np.float32)": "images of float32 20 x 3 x 8 x 8; they are uint8, N x 3 x S x S",
    "images = images[:, 0]": "images of uint8 20 x 8 x 8;",
    "images = images[..., :4]": "images of uint8 20 x 3 x 8 x 4;",
    "labels = labels / 2": "labels of float64 20; they are integers, N",
    "labels = labels[:7]": "labels of int64 7;",
    "labels = labels + 1": "labels from 1 to 2; of 2 classes they are 0 to 1",
    "labels = labels - 1": "labels from -1 to 0;",
    "images, labels = images[:19], labels[:19]": "19 training images; its `images` says 20",
}


def test_arrays_that_no_dataset_has_are_one_line_with_its_name(tmp_path):
    for line, says in NO_DATA.items():
        with pytest.raises(VitinitError, match=r"^dataset mine: its `read` gives .*training ") as refused:
            mine(line)._splits(tmp_path)
        assert says in str(refused.value)
    mine("")._splits(tmp_path)


def test_a_bug_in_a_dataset_fails_its_runs_and_no_others(tmp_path, here, monkeypatch):
    bugs = {"images = images.astype(np.float32)": "dataset mine: its `read` gives training images of float32"}
    bugs["images = images.no_such_thing"] = "'no_such_thing' (mine.py:11)"
    for name, line in zip(("mine", "typo"), bugs, strict=True):
        monkeypatch.setitem(registry._found(), name, registry._Found(mine(line), "a test"))
    both = changed(blocks__0__datasets=["mine", "typo", {"name": "digits", "train_size": 100}])
    both["rows"].pop("Mimetic")
    both["blocks"][0]["recipe"] |= {"epochs": 1, "batch_size": 20}
    path = write(tmp_path / "tiny.yaml", both)
    code, out = here("run", path, "--executor", "inline", "--no-probes")
    assert (code, "1 run finished, 2 failed" in out) == (1, True)
    contents = Store(tmp_path / "results/local").read("tiny")
    assert {run.spec.dataset.name for run in contents.done.values()} == {"digits"}
    for run in contents.failed.values():
        assert list(bugs.values())[run.spec.dataset.name == "typo"] in run.message
    assert out.index("failed") < out.index("after 1 epoch"), "what fails at once comes first"
    both["blocks"][0]["datasets"] = ["mine"]
    assert here("run", write(tmp_path / "alone.yaml", both), "--executor", "inline")[0] == 2, "nothing can be read"
    assert not (tmp_path / "results/local/alone").exists()


EDITED = """
from typing import ClassVar

import torch

from initializers.attention import attention_layers
from initializers.registry import Initializer


class Mine(Initializer):
    name: ClassVar[str] = "mine"
    touches: ClassVar[tuple[str, ...]] = ("*.qkv.weight",)

    @torch.no_grad()
    def apply(self, model, generator, progress):
        for layer in attention_layers(model):
            layer.value_DD.mul_(0.5)
"""


def test_runs_of_before_are_named_by_plan_status_and_run(tmp_path, here, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    rows = {
        "Mine": {"base": "trunc_normal", "method": "mine:Mine"},
        "Placebo": {"base": "trunc_normal", "method": {"name": "placebo", "of": "mine:Mine"}},
    }
    grid = changed(rows=rows, blocks__0__recipe__epochs=1)
    write(tmp_path / "tiny.yaml", grid)

    def edited(text: str) -> None:
        (tmp_path / "mine.py").write_text(text)
        sys.modules.pop("mine", None)  # as in a process of its own

    edited(EDITED)
    assert here("run", "tiny.yaml", "--executor", "inline", "--no-probes")[0] == 0
    store = Store(tmp_path / "results/local")
    of_file = hashlib.sha256(EDITED.encode()).hexdigest()[:16]
    whole = store.outline("tiny").done
    for run_id, record in store.read("tiny").done.items():
        assert record.environment["initializers"] == record.sources == whole[run_id].sources
        assert record.sources["mine:Mine"] == of_file
        assert record.sources.keys() - {"placebo"} == {"trunc_normal", "mine:Mine"}
    assert "other code" not in here("plan", "tiny.yaml")[1]

    edited(EDITED + "\n# another")
    for command in (("plan",), ("status",), ("run", "--executor", "inline")):
        code, printed = here(command[0], "tiny.yaml", *command[1:])
        assert code == 0
        assert printed.count("2 runs are done with other code of mine:Mine than is here: vitinit run GRID --force") == 1
        assert "other code of trunc_normal" not in printed
        assert all(run_id in printed for run_id in whole)
    first, second = whole
    assert here("run", "tiny.yaml", "--executor", "inline", "--no-probes", "--force", first)[0] == 0
    printed = here("plan", "tiny.yaml")[1]
    assert "1 run is done with other code of mine:Mine than is here: vitinit run GRID --force RUN_ID ..., " in printed
    assert f"({second})" in printed


def test_a_row_with_a_new_label_keeps_the_one_of_its_records(tmp_path, here):
    """Tables find its runs under that, and nobody waits for a row of the new name."""

    def renamed(to: str) -> None:
        rows = {"Base": {"base": "trunc_normal"}, to: {"base": "trunc_normal", "method": "mimetic"}}
        grid = changed(rows=rows, blocks__0__recipe__epochs=1) | {"contrasts": [[to, "Base"]]}
        write(tmp_path / "tiny.yaml", grid)

    store, said = Store(tmp_path / "results/local"), "row 'Mimetic, \"ours\"' is recorded as 'Mimetic é', and tables"
    renamed("Mimetic é")
    assert here("run", "tiny.yaml", "--executor", "inline", "--no-probes")[0] == 0
    layout = store.layout("tiny")
    assert layout.rows == ["Base", "Mimetic é"]
    assert {record.row for record in store.outline("tiny").done.values()} == {"Base", "Mimetic é"}
    assert "is recorded as" not in here("plan", "tiny.yaml")[1]
    renamed('Mimetic, "ours"')
    for command in ("plan", "status", "run"):
        code, printed = here(command, "tiny.yaml", *(["--executor", "inline"] if command == "run" else []))
        assert (code, said in " ".join(printed.split())) == (0, True)
    assert store.layout("tiny") == layout
