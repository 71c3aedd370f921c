"""ConViT's local initialisation against timm's own `GPSA.local_init` and paper-facts 4."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from small_models import CONVIT, applied, differing, model, state
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
def test_equals_timms_local_init(heads: int, strength: float, base: str) -> None:
    """Also over a base whose `pos_proj` has a bias."""
    theirs = GPSA(WIDTHS[heads], num_heads=heads, locality_strength=strength)
    theirs.local_init()
    for attn in gated(convit(heads, base, locality_strength=strength)):
        for name in ("pos_proj.weight", "v.weight", "gating_param"):
            assert torch.equal(attn.get_parameter(name), theirs.get_parameter(name))
        assert not attn.pos_proj.bias.any()


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
