"""ConViT's local initialisation against timm's own `GPSA.local_init` and paper-facts 4."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from small_models import CONVIT, JOB, applied, differing, f64, generator, model, state
from timm.models.convit import GPSA

from vitinit.initializers import registry

WIDTHS = {1: 12, 3: 48, 4: 48, 9: 72, 16: 96}


def convit(heads: int = 4, base: str = "trunc_normal", **params: Any) -> Any:
    return applied(applied(model(CONVIT, heads=heads, width=WIDTHS[heads]), base, 99), "convit_gpsa", **params)


def gated(m: Any) -> list[GPSA]:
    return [block.attn for block in m.blocks if isinstance(block.attn, GPSA)]


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


@pytest.mark.parametrize("heads", [3, 9])
def test_without_the_local_initialisation_there_are_no_targets_and_any_number_of_heads(heads: int) -> None:
    m, method = model(CONVIT, heads=heads, width=WIDTHS[heads]), registry.build("convit_gpsa", {"conv_init": False})
    method.check(m)
    assert method.apply(m, generator(), JOB) is None
