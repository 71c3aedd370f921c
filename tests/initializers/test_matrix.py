"""Every base and method on every family: set, as the model's own forward pass shows, or refused with the reason."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
import zoo
from small_models import differing, generator, images, refused, state
from torch import nn

import vitinit
from vitinit.initializers.attention import attention_layers
from vitinit.initializers.diagnostics import measured
from vitinit.initializers.whole_model import places

BASES = [known.name for known in vitinit.catalogue("base")]
METHODS = [known.name for known in vitinit.catalogue("method")]
REFUSED = yaml.safe_load(Path(__file__).with_name("refused.yaml").read_bytes())
KEPT = r"\.(gamma|gamma_\d|ls\d|lambda1)$"
"""Layer scales, which are the library's."""


def reason(name, method):
    reasons = REFUSED.get(method, {})
    return reasons.get(name, reasons.get("others"))


def fitting(method):
    return [name for name in zoo.ZOO if reason(name, method) is None]


@pytest.mark.parametrize("name", zoo.ZOO)
def test_what_does_not_fit_is_refused_with_its_reason_before_anything_is_changed(name):
    model = zoo.build(name)
    for method in METHODS:
        if why := reason(name, method):
            refused(model, re.escape(why), method, base="trunc_normal")


@pytest.mark.parametrize("name", zoo.ZOO)
def test_bases_set_every_parameter_whatever_was_there(name):
    """Each base meets three models or more."""
    base, states = BASES[list(zoo.ZOO).index(name) % len(BASES)], []
    for seed, there in ((1, float("nan")), (2, 7.0)):
        model = zoo.build(name, seed)
        own = [parameter for parameter, _ in model.named_parameters() if not re.search(KEPT, parameter)]
        for parameter in own:
            nn.init.constant_(model.get_parameter(parameter), there)
        assert {change.name for change in vitinit.initialize(model, base=base, seed=3).changes} >= set(own)
        states.append(state(model))
    assert differing(*states) == set(), base
    assert zoo.logits(model).isfinite().all()
    # roles against the names that the libraries use, none of which the code goes by
    roles = places(model)
    for linear in (name for name, part in model.named_modules() if isinstance(part, nn.Linear)):
        end, role = linear.rsplit(".", 1)[-1], roles[linear].role
        if end in ("qkv", "query", "key", "value", "q_proj", "k_proj", "v_proj"):
            assert role == "qkv", linear
        if end == "fc2":
            assert role == "mlp_out", linear
        if end in ("head", "classifier"):
            assert role == "head", linear


@pytest.mark.parametrize("name", fitting("impulse"))
def test_impulses_are_in_the_models_own_maps(name):
    """With tokens that are their positions alone, every head looks at the token at one offset."""
    model, held = zoo.build(name), nn.ModuleDict({"backbone": zoo.build(name)})
    report = vitinit.initialize(model, "impulse", base="trunc_normal", position_scale=1)
    plain = state(model)
    vitinit.initialize(held, "impulse", base="trunc_normal", position_scale=18)
    scaled = state(held["backbone"])
    (position,) = [
        tensor for tensor in plain if plain[tensor].any() and torch.equal(scaled[tensor], 18 * plain[tensor])
    ]
    assert "pos" in position
    patches = next(module for module in model.modules() if isinstance(module, nn.Conv2d | nn.Linear))
    for parameter in patches.parameters():
        nn.init.zeros_(parameter)
    near, inside, masses = (-1, 0, 1), range(4), list[float]()
    for grid in measured(model, images(2)).maps[0].numpy().reshape(-1, 4, 4, 4, 4):
        offsets = [
            [grid[r, c, r + y, c + x] for r in inside for c in inside if r + y in inside and c + x in inside]
            for y in near
            for x in near
        ]
        masses += max(offsets, key=np.mean)
    assert np.mean(masses) > 1.2 * report.uniform
    assert np.mean(masses) == pytest.approx(report.attention_on_target, abs=2e-3)


@pytest.mark.parametrize("name", fitting("mimetic"))
def test_measured_attention_explains_what_each_layer_gives(name):
    """Heads are A_h x W_v,h^T W_proj,h^T and biases, of weights that leave no table, mask or gate at zero."""
    model, noise, seen = zoo.build(name), generator(1), list[Any]()
    for parameter in model.parameters():
        if parameter.ndim > 1:
            parameter.data.add_(torch.randn(parameter.shape, generator=noise), alpha=0.3)
    layers = attention_layers(model)
    for layer in layers:
        layer.module.register_forward_hook(
            lambda _, given, named, out, layer=layer: seen.append(
                (layer, layer.attention(*given, **named), layer.tokens(given, named), out)
            ),
            with_kwargs=True,
        )
    zoo.logits(model)
    assert len(seen) == len(layers)
    for layer, map_BHNN, x_BND, out in seen:
        value_bias, proj_bias = (
            0 if bias is None else bias for bias in map(layer.bias, (layer.paths.value, layer.paths.proj))
        )
        value_BHNd = (x_BND @ layer.value_DD.T + value_bias).unflatten(-1, (layer.heads, -1)).transpose(1, 2)
        expected = (map_BHNN @ value_BHNd).transpose(1, 2).flatten(2) @ layer.proj_DD.T + proj_bias
        torch.testing.assert_close(out[0] if isinstance(out, tuple) else out, expected, atol=1e-4, rtol=1e-4)
