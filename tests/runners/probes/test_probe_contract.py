"""What every probe keeps to; and one that is added by one file is recorded and drawn."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch

from analysis.curves.layers import more
from analysis.frame import load_all
from benchmark.models.build import build_model
from benchmark.models.registry import presets, spec_of
from initializers import registry
from initializers.attention import attention_layers, seen_grids, token_grid
from initializers.diagnostics import measured, rounded
from runners.basics.streams import stream
from runners.probes.registry import Seen, probes
from tests.processes import fresh

ROOT = Path(__file__).parents[3]
PRESETS = ("vit_micro", "convit_micro", "deit_micro", "cait_micro", "swin_micro")
MEAN_KEY = '''
from runners.probes.registry import Seen, probe


@probe
def mean_column(seen: Seen):
    """Mean number of the column that attention falls on, L x H: 3.5 on eight columns where it is uniform."""
    rows, columns = seen.grid
    received = [maps_HNN.mean(-2).unflatten(-1, (rows, columns)).sum(-2) for maps_HNN in seen.attention.maps]
    return [each @ each.new_tensor(range(columns)) for each in received]
'''


@pytest.mark.parametrize("preset", PRESETS)
def test_a_probe_gives_numbers_by_layer_and_leaves_all_as_it_was(preset: str) -> None:
    model = build_model(spec_of({**presets()[preset], "image_size": 16, "patch_size": 2}), 10).train()
    registry.build("trunc_normal", {}).apply(model, stream(0, "init"), lambda done, total: None)
    images_BCHW = torch.randn(4, 3, 16, 16, generator=stream(0, "test"))
    heads = [layer.heads for layer in attention_layers(model)]
    tokens = math.prod(seen_grids(model)[0])
    targets_LHNN = torch.eye(tokens).expand(1 if preset == "swin_micro" else 2, heads[0], tokens, tokens)
    seen = Seen(model, images_BCHW, token_grid(model), measured(model, images_BCHW), targets_LHNN)
    weights, random, without = [value.clone() for value in model.state_dict().values()], torch.get_rng_state(), set()
    for name, probe in probes().items():
        values = [probe(seen) for _ in range(2)]
        assert all(torch.equal(now, then) for now, then in zip(model.state_dict().values(), weights, strict=True)), name
        assert torch.equal(torch.get_rng_state(), random), name
        assert model.training, name
        assert all(parameter.grad is None for parameter in model.parameters()), name
        if values[0] is None:
            without.add(name)
            continue
        now, then = map(rounded, values)
        assert now == then, name
        assert 1 <= len(now) <= len(heads), name
        for layer, many in zip(now, heads, strict=False):
            numbers = layer if isinstance(layer, list) else [layer]
            assert len(numbers) == (many if isinstance(layer, list) else 1), name
            assert None not in numbers, name
    expected = {"convit_micro": set(), "swin_micro": {"gating", "nonlocality_reference"}}
    assert without <= expected.get(preset, {"gating"})


def test_a_swin_of_one_stage_and_one_window_has_the_reference_too() -> None:
    one = {**presets()["swin_micro"], "depths": [2], "image_size": 16, "patch_size": 4}
    model = build_model(spec_of(one), 10)
    images_BCHW = torch.randn(4, 3, 16, 16, generator=stream(0, "test"))
    seen = Seen(model, images_BCHW, token_grid(model), measured(model, images_BCHW), None)
    by_layer = probes()["nonlocality_reference"](seen)
    assert len(by_layer) == len(attention_layers(model)) == 2
    assert all(0 < float(value) < 4 for layer in by_layer for value in layer)


def test_a_probe_of_one_more_file_is_recorded_and_drawn(tmp_path: Path) -> None:
    dropped = tmp_path / "dropped"
    dropped.mkdir()
    (dropped / "mean_column.py").write_text(MEAN_KEY)
    code = f"""
import sys
import runners.probes.quantities
runners.probes.quantities.__path__.append({str(dropped)!r})  # as if the file lay in the folder
from runners.cli.main import main
sys.argv = ["vitinit", "run", "smoke", "--executor", "inline", "--only", "row=Mimetic", "--limit", "1"]
main()
"""
    done = fresh("-c", code, cwd=tmp_path)
    assert "1 run finished" in done.stdout, done.stdout + done.stderr
    (path,) = (tmp_path / "results/local/smoke").glob("*.json")
    for probe in json.loads(path.read_text())["probes"]:
        (layers,) = probe["more"].values()
        assert list(probe["more"]) == ["mean_column"]
        assert all(2 < head < 5 for layer in layers for head in layer), layers
    (study,) = load_all([tmp_path / "results/local"])
    (figure,) = more(study).values()
    assert "mean_column" in figure.get_suptitle()
