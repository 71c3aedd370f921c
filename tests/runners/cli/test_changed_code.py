"""A method whose file is edited between two runs of one grid."""

from __future__ import annotations

import hashlib
import sys

import yaml

from benchmark.records.store import Store
from tests.runners.cli.test_cli import changed

MINE = """
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
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(grid))

    def edited(text: str) -> None:
        (tmp_path / "mine.py").write_text(text)
        sys.modules.pop("mine", None)  # as in a process of its own

    edited(MINE)
    assert here("run", "tiny.yaml", "--executor", "inline", "--no-probes")[0] == 0
    store = Store(tmp_path / "results/local")
    of_file = hashlib.sha256(MINE.encode()).hexdigest()[:16]
    whole = store.outline("tiny").done
    for run_id, record in store.read("tiny").done.items():
        assert record.environment["initializers"] == record.sources == whole[run_id].sources
        assert record.sources["mine:Mine"] == of_file
        assert record.sources.keys() - {"placebo"} == {"trunc_normal", "mine:Mine"}
    assert "other code" not in here("plan", "tiny.yaml")[1]

    edited(MINE + "\n# another")
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
        (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(grid, allow_unicode=True))

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
