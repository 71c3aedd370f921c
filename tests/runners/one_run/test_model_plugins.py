"""A model family from an installed package, by entry point: listed, planned, trained and tabled like one of ours."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.processes import ROOT, fresh, in_turn
from vitinit.benchmark.models.registry import families
from vitinit.benchmark.records.store import Store

FAMILY = '''
"""An MLP over tokens, one over channels."""

from typing import ClassVar, Literal

from vitinit.benchmark.fields import Count
from vitinit.benchmark.models.family import ModelSpec


class TheirMixer(ModelSpec):
    label: ClassVar[str] = "Their mixer"
    presets: ClassVar[dict] = {"their_micro": {"width": 16, "depth": 1, "sizes": [8, 8]}}

    arch: Literal["their_mixer"] = "their_mixer"
    sizes: tuple[Count, Count]

    @property
    def mixing(self) -> str:
        return f"{self.sizes[0]} and {self.sizes[1]} hidden"

    def build(self, classes: int):
        from timm.layers import PatchEmbed
        from torch import nn

        def mlp(features: int, hidden: int):
            return nn.Sequential(nn.Linear(features, hidden), nn.GELU(), nn.Linear(hidden, features))

        class Model(nn.Module):
            def __init__(model) -> None:
                super().__init__()
                model.patch_embed = PatchEmbed(self.image_size, self.patch_size, 3, self.width)
                model.tokens, model.channels = mlp(self.tokens, self.sizes[0]), mlp(self.width, self.sizes[1])
                model.head = nn.Linear(self.width, classes)

            def forward(model, images):
                x = model.patch_embed(images)
                x = x + model.tokens(x.transpose(1, 2)).transpose(1, 2)
                return model.head((x + model.channels(x)).mean(1))

        return Model()
'''
GRID = """
title: theirs beside ours
rows: {Trunc normal: {base: trunc_normal}, Mimetic: {base: trunc_normal, method: mimetic}}
blocks:
  - &block
    datasets: [{name: digits, train_size: 200}]
    model: {preset: vit_micro, image_size: 8, patch_size: 2}
    recipe: {name: small, epochs: 1}
    seeds: [0]
  - {<<: *block, model: {preset: their_micro, image_size: 8, patch_size: 2}}
"""


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """What `pip install` leaves behind."""
    info = tmp_path / "site" / "their_package-1.dist-info"
    info.mkdir(parents=True)
    (tmp_path / "site" / "their_package.py").write_text(FAMILY)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: their-package\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[vitinit.models]\ntheirs = their_package:TheirMixer\n")
    (tmp_path / "theirs.yaml").write_text(GRID)
    return tmp_path


@pytest.mark.long
def test_a_family_of_a_package_is_planned_trained_and_tabled(installed: Path) -> None:
    path, plan = (installed / "site", ROOT), ("plan", "theirs.yaml")
    run = ("run", "theirs.yaml", "--executor", "inline", "--device", "cpu")
    (_, listed, _), (_, planned, _), (code, ran, _), (_, again, _) = in_turn(
        ("list", "models"), plan, run, plan, cwd=installed, path=path, COLUMNS="300"
    )
    row = ["their_micro", "their_mixer", "16", "1", "sizes", "[8,", "8]"]
    assert row in [line.split() for line in listed.splitlines()]
    assert "4 runs" in planned
    assert (code, "Mimetic" in ran) == (0, True), ran
    assert "1 run" not in again.partition("to do")[0]
    outcomes = [json.loads(path.read_bytes()) for path in (installed / "results/local/theirs").glob("*.json")]
    (record,) = (each for each in outcomes if each["status"] == "done" and each["spec"]["model"]["arch"] != "vit")
    assert record["spec"]["model"] == {
        **{"arch": "their_mixer", "image_size": 8, "patch_size": 2, "width": 16, "depth": 1, "sizes": [8, 8]}
    }
    # patch embedding, token MLP, channel MLP, head, by hand
    assert record["parameters"] == 16 * 13 + (16 * 8 + 8 + 8 * 16 + 16) * 2 + 17 * 10
    assert len(record["history"]) == 1
    tables = fresh("-m", "vitinit.analysis.tables", "--all", cwd=installed, path=path, COLUMNS="300")
    assert "Their mixer width 16 depth 1, 8 and 8 hidden, patch 2" in tables.stdout

    # without the package, the record is a file that says what it needs
    said = f"unknown arch 'their_mixer'; available: {', '.join(families())}"
    problems = Store(installed / "results/local").read("theirs").problems
    assert [said in problem for problem in problems] == [True, True], "a run and a skip"
