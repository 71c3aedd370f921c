"""Methods of one family: filters by the formulas of arXiv 2404.01139, ConViT's start by timm and paper-facts 4."""

import math

import numpy as np
import pytest
import torch
from small_models import CONVIT, CONVMIXER, applied, assert_uniform, f64, model
from timm.models.convit import GPSA

import vitinit

WIDTH = 600


def filters(kernel_size, **params):
    """The first layer's filters, D x f x f, whose biases are uniform within 1/f."""
    spec = CONVMIXER.model_copy(update={"kernel_size": kernel_size, "width": WIDTH, "depth": 1})
    layer = applied(model(spec), "conv_filters", **params).blocks[0][0].fn[0]
    assert_uniform(f64(layer.bias), 1 / kernel_size)
    return f64(layer.weight)[:, 0]


def test_random_filters_are_uniform():
    assert_uniform(filters(5, filter="random"), 1 / 5)


@pytest.mark.parametrize(("f", "n"), [(3, 1), (3, 9), (8, 3)])
def test_a_box_has_n_equal_entries_and_an_impulse_one(f, n):
    weight_DPQ = filters(f, filter="box", entries=n) if n > 1 else filters(f)
    assert ((weight_DPQ != 0).sum((1, 2)) == n).all()
    np.testing.assert_allclose(weight_DPQ[weight_DPQ != 0], math.sqrt(1 / (n * f)), rtol=1e-6)
    # each place is as likely as any other: within five standard deviations
    share = (weight_DPQ != 0).mean(0)
    assert np.abs(share - n / f**2).max() <= 5 * math.sqrt(n / f**2 * (1 - n / f**2) / WIDTH)


def test_gaussians_have_their_shape_a_place_for_a_centre_and_one_scale():
    f, s = 5, 0.3
    weight_DPQ, place = filters(f, filter="gaussian", variance=s), np.arange(f)
    bell = np.exp(-((place[:, None] - place) ** 2) / (2 * s))  # by distance from each centre
    centres = [np.unravel_index(weight.argmax(), (f, f)) for weight in weight_DPQ]
    assert len(set(centres)) == f**2
    unscaled_DPQ = np.stack([np.outer(bell[row], bell[column]) for row, column in centres])
    scale = math.sqrt((unscaled_DPQ**2).sum((1, 2)).mean() * f)  # as large as an impulse
    np.testing.assert_allclose(weight_DPQ, unscaled_DPQ / scale, rtol=1e-5, atol=1e-9)


# --- ConViT ---


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
