"""ConViT's local initialisation against timm's own `GPSA.local_init` and paper-facts 4."""

import pytest
import torch
from small_models import CONVIT, applied, model
from timm.models.convit import GPSA

import vitinit

WIDTHS = {1: 12, 4: 48, 9: 72}


def based(heads):
    """Over a base whose `pos_proj` has a bias."""
    return applied(model(CONVIT, heads=heads, width=WIDTHS[heads]), "kaiming_uniform", 99)


@pytest.mark.parametrize(("heads", "strength"), [(1, 1.0), (4, 0.5), (9, 1.0)])
def test_equals_timms_local_init(heads, strength):
    theirs = GPSA(WIDTHS[heads], num_heads=heads, locality_strength=strength)
    theirs.local_init()
    for block in applied(based(heads), "convit_gpsa", locality_strength=strength).blocks[:2]:
        for name in ("pos_proj.weight", "v.weight", "gating_param"):
            assert torch.equal(block.attn.get_parameter(name), theirs.get_parameter(name))
        assert not block.attn.pos_proj.bias.any()


GATED = {"train_gating": False, "gate": 0.0}
LOCAL = ("v.weight", "pos_proj.weight", "pos_proj.bias")
ALL = ("gating_param", *LOCAL, "qk.weight", "proj.weight", "proj.bias")


@pytest.mark.parametrize(
    ("switches", "sets", "keeps"),
    [
        ({}, LOCAL, ()),
        (GATED, ("gating_param", *LOCAL), ("gating_param",)),
        ({"conv_init": False}, (), ()),
        ({**GATED, "train_gpsa": False, "conv_init": False}, ("gating_param",), ALL),
    ],
)
def test_switches_of_table_3_change_and_freeze_what_they_name_and_nothing_else(switches, sets, keeps):
    m = based(9)
    report = vitinit.initialize(m, {"name": "convit_gpsa", **switches})
    changed, untrained = (
        {f"blocks.{layer}.attn.{part}" for layer in (0, 1) for part in parts} for parts in (sets, keeps)
    )
    assert {change.name for change in report.changes} == {"cls_token", *changed}
    assert set(report.untrained) == untrained
    assert m.blocks[1].attn.gating_param.any() != ("gate" in switches)
