"""ConViT's local initialisation against timm's own `GPSA.local_init` and paper-facts 4."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from small_models import CONVIT, applied, differing, f64, generator, model, silent, softmax, state, streams
from timm.models.convit import GPSA

from vitinit.initializers import registry
from vitinit.initializers.initialize import initialize

WIDTHS = {1: 12, 3: 48, 4: 48, 9: 72, 16: 96}


def convit(heads: int = 4, base: str = "trunc_normal", **params: Any) -> Any:
    return applied(applied(model(CONVIT, heads=heads, width=WIDTHS[heads]), base, 99), "convit_gpsa", **params)


def gated(m: Any) -> list[GPSA]:
    return [block.attn for block in m.blocks if isinstance(block.attn, GPSA)]


def positional_attention(attn: GPSA, side: int) -> np.ndarray:
    """softmax over keys of v_pos . [dx, dy, dx^2 + dy^2], d = key - query, heads x N x N."""
    weight, bias = f64(attn.pos_proj.weight), f64(attn.pos_proj.bias)
    places = [(r, c) for r in range(side) for c in range(side)]
    away = np.array([[[kc - c, kr - r, (kc - c) ** 2 + (kr - r) ** 2] for kr, kc in places] for r, c in places])
    return softmax(np.stack([away @ w + b for w, b in zip(weight, bias, strict=True)]))


@pytest.mark.parametrize(
    ("heads", "strength", "base"),
    [(1, 1.0, "trunc_normal"), (4, 0.5, "kaiming_uniform"), (9, 1.0, "trunc_normal"), (16, 0.5, "kaiming_uniform")],
)
def test_equals_timms_local_init_and_the_formula(heads: int, strength: float, base: str) -> None:
    """Also over a base whose `pos_proj` has a bias."""
    theirs = GPSA(WIDTHS[heads], num_heads=heads, locality_strength=strength)
    theirs.local_init()
    side = math.isqrt(heads)
    c = (side - 1) / 2
    for attn in gated(convit(heads, base, locality_strength=strength)):
        for name in ("pos_proj.weight", "v.weight", "gating_param"):
            assert torch.equal(attn.get_parameter(name), theirs.get_parameter(name))
        assert not attn.pos_proj.bias.any()
        for h1 in range(side):
            for h2 in range(side):
                expected = np.array([2 * (h2 - c), 2 * (h1 - c), -1]) * strength
                np.testing.assert_array_equal(f64(attn.pos_proj.weight)[h1 + side * h2], expected)


def test_report_measures_nine_heads_against_their_targets_and_four_against_none() -> None:
    def report(heads: int) -> Any:
        m, parts = model(CONVIT, heads=heads, width=WIDTHS[heads]), ("trunc_normal", "convit_gpsa")
        base, method = (registry.build(part, {}) for part in parts)
        return initialize(m, base, method, streams(0), torch.zeros(1, 3, 32, 32))[0]

    nine = report(9)
    assert nine.pseudo_input.argmax == 1.0
    assert nine.real_images.argmax == 1.0
    assert 0.2 < nine.pseudo_input.mass < 0.731
    assert report(4).pseudo_input is None


SWITCHES: list[dict[str, Any]] = [
    {},
    {"train_gating": False, "gate": 0.0},
    {"conv_init": False},
    {"train_gating": False, "gate": 0.0, "conv_init": False},
    {"train_gating": False, "gate": 0.0, "train_gpsa": False},
    {"train_gating": False, "gate": 0.0, "train_gpsa": False, "conv_init": False},
]
"""Rows a, b, c, d, f and g of Table 3."""


@pytest.mark.parametrize("switches", SWITCHES)
def test_switches_change_and_freeze_what_they_name_and_nothing_else(switches: dict[str, Any]) -> None:
    heads = 9
    expected, m = state(convit(heads)), convit(heads, **switches)
    base = applied(model(CONVIT, heads=heads, width=WIDTHS[heads]), "trunc_normal", 99)
    for name, value in state(base).items():
        if name.endswith(("attn.v.weight", "pos_proj.weight", "pos_proj.bias")) and "conv_init" in switches:
            expected[name] = value
        if name.endswith("gating_param") and "gate" in switches:
            expected[name] = torch.zeros(heads)
    assert differing(expected, state(m)) == set()
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


@pytest.mark.parametrize("heads", [3, 9])
def test_without_the_local_initialisation_there_are_no_targets_and_any_number_of_heads(heads: int) -> None:
    m, method = model(CONVIT, heads=heads, width=WIDTHS[heads]), registry.build("convit_gpsa", {"conv_init": False})
    method.check(m)
    assert method.apply(m, generator(), silent) is None


def test_class_token_is_drawn_with_std_002() -> None:
    token = f64(convit(16, base="kaiming_uniform").cls_token)
    assert abs(token.std() - 0.02) < 5 * 0.02 / math.sqrt(2 * token.size)
