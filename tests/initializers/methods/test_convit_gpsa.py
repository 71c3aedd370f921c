"""ConViT's local initialisation against timm's own `GPSA.local_init` and paper-facts 4."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from small_models import CONVIT, VIT, differing, f64, generator, loop_targets, model, silent, softmax, state, streams
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


@pytest.mark.parametrize("strength", [1.0, 0.5])
@pytest.mark.parametrize("heads", [1, 4, 9, 16])
def test_equals_timms_local_init(heads: int, strength: float) -> None:
    theirs = GPSA(WIDTHS[heads], num_heads=heads, locality_strength=strength)
    theirs.local_init()
    for attn in gated(convit(heads, locality_strength=strength)):
        assert torch.equal(attn.pos_proj.weight, theirs.pos_proj.weight)
        assert torch.equal(attn.v.weight, theirs.v.weight)
        assert not attn.pos_proj.bias.any()
        assert torch.equal(attn.gating_param, theirs.gating_param)


@pytest.mark.parametrize("strength", [1.0, 0.5])
@pytest.mark.parametrize("heads", [4, 9, 16])
def test_equals_the_formula(heads: int, strength: float) -> None:
    side = math.isqrt(heads)
    c = (side - 1) / 2
    weight = f64(gated(convit(heads, locality_strength=strength))[0].pos_proj.weight)
    for h1 in range(side):
        for h2 in range(side):
            expected = np.array([2 * (h2 - c), 2 * (h1 - c), -1]) * strength
            np.testing.assert_array_equal(weight[h1 + side * h2], expected)


@pytest.mark.parametrize("base", ["kaiming_uniform", "trunc_normal"])
def test_pos_proj_bias_is_zero_over_every_base(base: str) -> None:
    for attn in gated(convit(base=base)):
        assert not attn.pos_proj.bias.any()


def test_gate_is_open_by_0731() -> None:
    attn = gated(convit())[0]
    assert abs(1 / (1 + math.exp(-attn.gating_param[0].item())) - 0.731) < 0.0005
    # with content attention made flat, a row of the map is 0.731 of position and the rest spread evenly
    with torch.no_grad():
        attn.qk.weight.zero_()
    attn.rel_indices = attn.get_rel_indices(16)
    got = f64(attn.get_attention(torch.randn(1, 16, 48, generator=generator())))[0]
    np.testing.assert_allclose(got, 0.7310586 * positional_attention(attn, 4) + 0.2689414 / 16, atol=1e-6)


def test_nine_heads_peak_at_their_nine_neighbours() -> None:
    offsets = [(h % 3 - 1, h // 3 - 1) for h in range(9)]  # head h1 + 3 h2: row h1 - 1, column h2 - 1
    assert len(set(offsets)) == 9
    targets = loop_targets(6, 6, offsets)
    attention = positional_attention(gated(convit(9))[0], 6)
    for head in range(9):
        for row in np.flatnonzero(targets[head].any(1)):
            assert attention[head, row].argmax() == targets[head, row].argmax()


def test_a_stronger_locality_peaks_more_sharply() -> None:
    weak, strong = (positional_attention(gated(convit(9, locality_strength=s))[0], 6) for s in (0.5, 2.0))
    assert strong.max(-1).mean() > weak.max(-1).mean() + 0.2


def test_four_heads_look_between_tokens() -> None:
    attention = positional_attention(gated(convit(4))[0], 6)
    query = 2 * 6 + 2
    for head, (dy, dx) in enumerate([(-1, -1), (0, -1), (-1, 0), (0, 0)]):  # upper left token of the four that tie
        top = np.argsort(attention[head, query])[::-1][:4]
        corner = (2 + dy) * 6 + 2 + dx
        assert set(top.tolist()) == {corner, corner + 1, corner + 6, corner + 7}
        np.testing.assert_allclose(attention[head, query][top], attention[head, query][top[0]], rtol=1e-9)


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


@pytest.mark.parametrize("heads", [2, 3, 6, 12])
def test_heads_that_are_no_square_are_refused(heads: int) -> None:
    m = model(CONVIT, heads=heads)
    with pytest.raises(VitinitError, match=rf"square .*{heads}"):
        registry.build("convit_gpsa", {}).check(m)


def test_a_plain_vit_is_refused() -> None:
    with pytest.raises(VitinitError, match="convit"):
        registry.build("convit_gpsa", {}).check(model(VIT))


def test_a_strength_that_is_not_positive_is_refused() -> None:
    for strength in (0, -1.0, float("inf")):
        with pytest.raises(VitinitError, match="locality_strength"):
            registry.build("convit_gpsa", {"locality_strength": strength})


def test_self_attention_layers_and_everything_else_keep_the_base() -> None:
    m = model(CONVIT)
    registry.build("trunc_normal", {}).apply(m, generator(99), silent)
    before, after = state(m), state(convit())
    set_by_method = ("attn.v.weight", "pos_proj.weight", "cls_token")
    for name in before:
        assert torch.equal(before[name], after[name]) != name.endswith(set_by_method), name
    assert not any(name.endswith(set_by_method) for name in before if name.startswith("blocks.2."))


SWITCHES: list[dict[str, Any]] = [
    {"train_gating": False, "gate": 0.0},
    {"conv_init": False},
    {"train_gating": False, "gate": 0.0, "conv_init": False},
    {"train_gating": False, "gate": 0.0, "train_gpsa": False},
    {"train_gating": False, "gate": 0.0, "train_gpsa": False, "conv_init": False},
]
"""Rows b, c, d, f and g of Table 3; a is the default."""


@pytest.mark.parametrize("switches", SWITCHES)
@pytest.mark.parametrize("heads", [4, 9])
def test_switches_change_what_they_name_and_nothing_else(heads: int, switches: dict[str, Any]) -> None:
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


@pytest.mark.parametrize("gate", [-1.5, 0.0, 2.0])
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
