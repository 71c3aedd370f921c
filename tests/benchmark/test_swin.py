"""Swin: sizes by hand and timm's, windows that fill small images, and what is measured of attention in windows."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from tests.initializers.caught import maps_of
from vitinit.benchmark.grids.resolve import resolve_model
from vitinit.benchmark.models.build import build_model
from vitinit.benchmark.models.family import ModelSpec
from vitinit.initializers import registry
from vitinit.initializers.attention import attention_layers, seen_grids
from vitinit.initializers.diagnostics import measured, starts
from vitinit.initializers.errors import VitinitError
from vitinit.initializers.initialize import initialize
from vitinit.initializers.registry import Resources
from vitinit.runners.basics.streams import stream
from vitinit.runners.probes.quantities.effective_receptive_field import receptive_field

IMAGES_BCHW = torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(0))


def preset(name: str = "swin_micro", image_size: int = 32, **fields: Any) -> ModelSpec:
    return resolve_model({"preset": name, "image_size": image_size, "patch_size": 4, **fields})


@pytest.mark.parametrize("window_size", [2, 4, 8])
def test_operations_are_those_that_torch_counts(window_size: int) -> None:
    spec = preset(window_size=window_size)
    model = build_model(spec, 10).eval().requires_grad_(False)
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        model(IMAGES_BCHW[:1])
    assert spec.forward_operations(10) == counter.get_total_flops()


def initialised(method: dict[str, Any] | None = None, scale: float = 1.0, **fields: Any) -> Any:
    """With W_q and W_k larger, so that attention is far from uniform."""
    model = build_model(preset(**fields), 10).eval()
    built = registry.build(**method, kind="method") if method else None
    resources = Resources(training_images=lambda count: IMAGES_BCHW)
    initialize(model, registry.build("trunc_normal", {}), built, lambda name: stream(0, name), resources=resources)
    with torch.no_grad():
        for layer in attention_layers(model):
            layer.query_HdD.mul_(scale)
            layer.key_HdD.mul_(scale)
    return model


WINDOWS: list[tuple[int, int, list[int], list[int]]] = [
    (32, 4, [2, 2], [4, 4]),
    (32, 2, [2, 2, 6, 2], [4, 4, 4, 2]),
    (32, 4, [2, 2, 6, 2], [4, 4, 2, 1]),
    (24, 2, [1, 1, 1], [6, 6, 3]),
    (224, 4, [2, 2, 6, 2], [7, 7, 7, 7]),
    (44, 4, [3], [11]),
    (72, 4, [2, 2], [3, 3]),
    (88, 4, [2, 2], [22, 11]),
]


def test_windows_fill_the_grid_of_every_stage(undrawn) -> None:
    for image_size, patch_size, depths, windows in WINDOWS:
        spec: Any = preset(image_size=image_size, patch_size=patch_size, depths=depths)
        assert spec.windows == windows
        assert spec.depth == sum(depths)
        with torch.device("meta"):
            model: Any = build_model(spec, 10)
        for stage, window in zip(model.layers, windows, strict=True):
            assert stage.output_resolution[0] % window == 0, "timm pads nothing"
            assert {block.window_size for block in stage.blocks} == {(window, window)}
        by_layer = [window for window, depth in zip(windows, depths, strict=True) for _ in range(depth)]
        assert [layer.relative_bias.window[0] for layer in attention_layers(model)] == by_layer  # type: ignore[union-attr]


def test_what_cannot_be_is_refused() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"window_size": 7}, "window_size 7 does not divide the side 8 of stage 1"),
        ({"window_size": 4, "image_size": 48}, "window_size 4 does not divide the side 6 of stage 2"),
        ({"image_size": 20}, "stage 1 has 5 x 5 tokens, which cannot be merged two by two"),
        ({"depths": [1] * 5}, "stage 4 has 1 x 1 tokens, which cannot be merged"),
        ({"depth": 3}, r"depth 3 is not the sum of depths \[2, 2\]; leave it out"),
        ({"depths": []}, "depths"),
        ({"depths": 2}, "depths"),
        ({"depths": [2, True]}, "depths"),
        ({"heads": 5}, "width 24 is not divisible by heads 5"),
        ({"mlp_ratio": 0.01}, "leaves the MLP no feature"),
        ({"window_size": 0}, "window_size"),
        ({"patch_size": 0}, "patch_size"),
        ({"image_size": "32"}, "image_size"),
    ]
    for fields, words in cases:
        with pytest.raises(VitinitError, match=words):
            preset(**fields)


def test_entropy_and_distance_are_within_windows() -> None:
    model = initialised(scale=8.0, depths=[1, 2], image_size=16, window_size=2)
    assert seen_grids(model) == [(2, 2)] * 3
    theirs = maps_of(model, IMAGES_BCHW[:, :, :16, :16])
    found, started = measured(model, IMAGES_BCHW[:, :, :16, :16]), starts(model, IMAGES_BCHW[:, :, :16, :16])
    away = torch.tensor([[math.hypot(i // 2 - j // 2, i % 2 - j % 2) for j in range(4)] for i in range(4)])
    for number, attention_WHNN in enumerate(theirs):
        torch.testing.assert_close(found.maps[number], attention_WHNN.mean(0))
        entropy_H = torch.special.entr(attention_WHNN).sum(-1).mean((0, 2))
        assert found.entropy[number].tolist() == pytest.approx(entropy_H.tolist(), rel=1e-5)
        assert started[number].entropy == pytest.approx(entropy_H.tolist(), rel=1e-5)
        distance_H = (attention_WHNN * away).sum(-1).mean((0, 2))
        assert started[number].distance == pytest.approx(distance_H.tolist(), rel=1e-5)


def test_receptive_field_is_in_patches_whatever_a_stage_calls_a_token() -> None:
    """Blocks that do nothing: a token of the second stage is four patches, its middle half a step from each."""
    model = initialised()
    for layer in attention_layers(model):
        block: Any = layer.block
        for branch in (block.attn.proj, block.mlp.fc2):
            torch.nn.init.zeros_(branch.weight)
    found = receptive_field(model, IMAGES_BCHW)
    assert found.tolist() == pytest.approx([0, 0, math.hypot(0.5, 0.5), math.hypot(0.5, 0.5)], abs=1e-6)


@pytest.mark.parametrize("per_layer", [False, True])
def test_impulses_are_in_the_table_of_every_stage(per_layer: bool) -> None:
    """Ours: log of a window's tokens at a head's offset, 0 elsewhere; so half of uniform attention falls there."""
    model = build_model(preset(), 10).eval()
    method = registry.build("impulse", {"per_layer": per_layer}, "method")
    report, targets_LHNN = initialize(
        model, registry.build("trunc_normal", {}), method, lambda name: stream(0, name), IMAGES_BCHW
    )
    assert targets_LHNN.shape == (1, 2, 16, 16)
    for layer in attention_layers(model):
        bias = layer.relative_bias
        counts = (bias.table_EH != 0).sum(0)
        assert counts.tolist() == [1] * layer.heads
        assert bias.table_EH.max().item() == pytest.approx(math.log(16))
    assert report.real_images.mass == pytest.approx(16 / 31, abs=0.02), "16 shares among 16 and 15 others"
    assert report.pseudo_input.mass == pytest.approx(16 / 31, abs=1e-5)
    assert len(report.offset_maps or []) == 2
    assert len(report.start) == 4


def test_a_placebo_has_the_methods_entropy_within_windows() -> None:
    mimetic, placebo = initialised({"name": "mimetic", "params": {}}), build_model(preset(), 10).eval()
    report, _ = initialize(
        placebo,
        registry.build("trunc_normal", {}),
        registry.build("placebo", {"of": "mimetic", "keep": "entropy"}, "method"),
        lambda name: stream(0, name),
        resources=Resources(training_images=lambda count: IMAGES_BCHW),
    )
    ours, theirs = (
        [float(torch.special.entr(each).sum(-1).mean()) for each in maps_of(model, IMAGES_BCHW)]
        for model in (placebo, mimetic)
    )
    assert ours == pytest.approx([row.placebo for row in report.placebo.matched], rel=1e-5)
    assert ours == pytest.approx(theirs, rel=1e-2)
