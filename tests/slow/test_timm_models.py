"""Models of timm that nothing in this project names, trained for a few steps with three methods each."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.harness import setting
from tests.runners.small_run import spec
from vitinit.benchmark.grids.parts import resolve_model
from vitinit.benchmark.grids.schema import Cell
from vitinit.benchmark.records.store import Store
from vitinit.benchmark.spec import InitializerSpec
from vitinit.runners.basics.stop import Stop
from vitinit.runners.one_run.carry_out import carry_out

pytestmark = pytest.mark.slow


METHODS = ("mimetic", "depth_scaled", "whitened_patches")
SMALL = {"img_size": 16, "patch_size": 8, "depth": 1}
MODELS = [
    {"timm": "eva02_tiny_patch14_224", "img_size": 28, "depth": 1},
    {"timm": "swin_tiny_patch4_window7_224", "img_size": 28, "depths": [1], "num_heads": [3]},
    {"timm": "convit_tiny", **SMALL, "depth": 2, "local_up_to_layer": 1},
    *[
        {"timm": name, **SMALL}
        for name in (
            *("vit_wee_patch16_reg1_gap_256", "deit3_small_patch16_224", "cait_xxs24_224", "deit_tiny_patch16_224"),
            *("flexivit_small", "vit_xsmall_patch16_clip_224", "vit_tiny_patch16_224"),
        )
    ],
]


@pytest.mark.parametrize("model", MODELS, ids=lambda each: each["timm"])
def test_it_trains_from_three_methods(model: dict, tmp_path: Path) -> None:
    where = setting(tmp_path)
    for method in METHODS:
        base, chosen = InitializerSpec(name="trunc_normal"), InitializerSpec(name=method)
        carry_out(Cell(method, spec(model=resolve_model(model), base=base, method=chosen)), where, Stop())
    records = Store(where.root).read(where.study).done.values()
    assert {record.row for record in records} == set(METHODS)
    assert len({record.weights for record in records}) == len(METHODS)
