"""ConViT's local initialisation against timm's own `GPSA.local_init` and paper-facts 4."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from small_models import CONVIT, differing, f64, generator, model, silent, softmax, state, streams
from timm.models.convit import GPSA

from initializers import registry
from initializers.errors import VitinitError
from initializers.initialize import initialize

WIDTHS = {1: 12, 4: 48, 9: 72, 16: 96}


def convit(heads: int = 4, base: str = "trunc_normal", **params: Any) -> Any:
    m = model(CONVIT, heads=heads, width=WIDTHS[heads])
    registry.build(base, {}).apply(m, generator(99), silent)
    registry.build("convit_gpsa", params).apply(m, generator(), silent)
    return m


def gated(m: Any) -> list[GPSA]:
    return [block.attn for block in m.blocks if isinstance(block.attn, GPSA)]


def positional_attention(attn: GPSA, side: int) -> np.ndarray:
    """softmax over keys of v_pos . [dx, dy, dx^2 + dy^2], d = key - query, heads x N x N."""
    weight, bias = f64(attn.pos_proj.weight), f64(attn.pos_proj.bias)
    places = [(r, c) for r in range(side) for c in range(side)]
    scores = np.zeros((len(weight), len(places), len(places)))
    for h in range(len(weight)):
        for i, (query_row, query_column) in enumerate(places):
            for j, (key_row, key_column) in enumerate(places):
                dx, dy = key_column - query_column, key_row - query_row
                scores[h, i, j] = weight[h] @ [dx, dy, dx * dx + dy * dy] + bias[h]
    return softmax(scores)


@pytest.mark.parametrize(("heads", "strength"), [(1, 1.0), (4, 0.5), (9, 1.0), (16, 0.5)])
def test_equals_timms_local_init(heads: int, strength: float) -> None:
    theirs = GPSA(WIDTHS[heads], num_heads=heads, locality_strength=strength)
    theirs.local_init()
    for attn in gated(convit(heads, locality_strength=strength)):
        assert torch.equal(attn.pos_proj.weight, theirs.pos_proj.weight)
        assert torch.equal(attn.v.weight, theirs.v.weight)
        assert not attn.pos_proj.bias.any()
        assert torch.equal(attn.gating_param, theirs.gating_param)


@pytest.mark.parametrize(("heads", "strength"), [(4, 0.5), (9, 1.0)])
def test_equals_the_formula(heads: int, strength: float) -> None:
    side = math.isqrt(heads)
    c = (side - 1) / 2
    weight = f64(gated(convit(heads, locality_strength=strength))[0].pos_proj.weight)
    for h1 in range(side):
        for h2 in range(side):
            expected = np.array([2 * (h2 - c), 2 * (h1 - c), -1]) * strength
            np.testing.assert_array_equal(weight[h1 + side * h2], expected)


def test_pos_proj_bias_is_zero_over_a_base_that_has_some() -> None:
    for attn in gated(convit(base="kaiming_uniform")):
        assert not attn.pos_proj.bias.any()


def test_report_measures_nine_heads_against_their_targets_and_four_against_none() -> None:
    def report(heads: int) -> Any:
        m = model(CONVIT, heads=heads, width=WIDTHS[heads])
        return initialize(
            m,
            registry.build("trunc_normal", {}),
            registry.build("convit_gpsa", {}),
            streams(0),
            torch.zeros(1, 3, 32, 32),
        )[0]

    nine = report(9)
    assert nine.pseudo_input.argmax == 1.0
    assert nine.real_images.argmax == 1.0
    assert 0.2 < nine.pseudo_input.mass < 0.731
    assert report(4).pseudo_input is None


@pytest.mark.parametrize("heads", [2, 12])
def test_heads_that_are_no_square_are_refused(heads: int) -> None:
    m = model(CONVIT, heads=heads)
    with pytest.raises(VitinitError, match=rf"square .*{heads}"):
        registry.build("convit_gpsa", {}).check(m)


def test_a_strength_that_is_not_positive_is_refused() -> None:
    for strength in (0, -1.0, float("inf")):
        with pytest.raises(VitinitError, match="locality_strength"):
            registry.build("convit_gpsa", {"locality_strength": strength})


SWITCHES: list[dict[str, Any]] = [
    {"train_gating": False, "gate": 0.0},
    {"conv_init": False},
    {"train_gating": False, "gate": 0.0, "conv_init": False},
    {"train_gating": False, "gate": 0.0, "train_gpsa": False},
    {"train_gating": False, "gate": 0.0, "train_gpsa": False, "conv_init": False},
]
"""Rows b, c, d, f and g of Table 3; a is the default."""


@pytest.mark.parametrize("switches", SWITCHES)
def test_switches_change_what_they_name_and_nothing_else(switches: dict[str, Any]) -> None:
    heads = 9
    default, switched = state(convit(heads)), state(convit(heads, **switches))
    base = model(CONVIT, heads=heads, width=WIDTHS[heads])
    registry.build("trunc_normal", {}).apply(base, generator(99), silent)
    expected = dict(default)
    for name, value in state(base).items():
        if name.endswith(("attn.v.weight", "pos_proj.weight", "pos_proj.bias")) and "conv_init" in switches:
            expected[name] = value
        if name.endswith("gating_param") and "gate" in switches:
            expected[name] = torch.zeros(heads)
    assert differing(expected, switched) == set()


@pytest.mark.parametrize("switches", [{}, *SWITCHES])
def test_what_is_frozen(switches: dict[str, Any]) -> None:
    m = model(CONVIT)
    registry.build("convit_gpsa", switches).freeze(m)
    frozen = {name for name, parameter in m.named_parameters() if not parameter.requires_grad}
    parts = ["gating_param"] if "train_gating" in switches else []
    if "train_gpsa" in switches:
        parts += ["qk.weight", "v.weight", "pos_proj.weight", "pos_proj.bias", "proj.weight", "proj.bias"]
    assert frozen == {f"blocks.{layer}.attn.{part}" for layer in (0, 1) for part in parts}


@pytest.mark.parametrize("gate", [-1.5, 1.0])
def test_a_gate_gives_position_its_sigmoid(gate: float) -> None:
    attn = gated(convit(9, gate=gate))[0]
    with torch.no_grad():
        attn.qk.weight.zero_()
    attn.rel_indices = attn.get_rel_indices(16)
    got = f64(attn.get_attention(torch.randn(1, 16, 72, generator=generator())))[0]
    share = 1 / (1 + math.exp(-gate))
    np.testing.assert_allclose(got, share * positional_attention(attn, 4) + (1 - share) / 16, atol=1e-6)


def test_without_the_local_initialisation_there_are_no_targets_and_any_number_of_heads() -> None:
    m = model(CONVIT, heads=3)
    method = registry.build("convit_gpsa", {"conv_init": False})
    method.check(m)
    assert method.apply(m, generator(), silent) is None
    nine = model(CONVIT, heads=9, width=WIDTHS[9])
    assert method.apply(nine, generator(), silent) is None


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"train_gpsa": False}, "needs train_gating false"),
        ({"conv_init": False, "locality_strength": 0.5}, "no effect where conv_init is false"),
        ({"gate": float("inf")}, "gate"),
    ],
)
def test_switches_without_effect_are_refused(params: dict[str, Any], words: str) -> None:
    with pytest.raises(VitinitError, match=words):
        registry.build("convit_gpsa", params)


def test_class_token_is_drawn_with_std_002() -> None:
    token = f64(convit(16, base="kaiming_uniform").cls_token)
    assert abs(token.std() - 0.02) < 5 * 0.02 / math.sqrt(2 * token.size)
