"""Promises of every initialiser; a new file in the registry is tested here with no edit."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from small_models import ARCHS, differing, facts, global_state, images, model, state

import vitinit
from vitinit.initializers import registry

BASES = registry.names("base")
METHODS = registry.names("method")

PARAMETERS: dict[str, list[dict[str, Any]]] = {
    "orthogonal": [{"qkv": "per_head"}],
    "mimetic": [{"noise": "uniform", "vproj_order": "released"}, {"parts": "vo", "mlp_mean": 0.01}],
    "impulse": [
        {"solver": "svd", "offsets": "fixed", "per_layer": True, "position_scale": 18.0, "value_proj": "released"},
        {"solver": {"name": "gradient", "steps": 3}, "kernel_size": 5},
        {"pseudo_input": "images", "per_layer": True, "value_proj": "mimetic", "control": "shuffled_rows"},
        {"pseudo_input_later": "position+normal", "solver": "svd", "control": "random_binary", "weight_norm": 3.0},
        {"pseudo_input": "uniform", "control": "constant_offset"},
    ],
    "convit_gpsa": [{"conv_init": False}, {"train_gating": False, "train_gpsa": False}],
    "conv_filters": [{"filter": "random"}, {"filter": "box", "entries": 4}, {"filter": "gaussian", "variance": 0.5}],
    "lsuv": [{"images": 3, "tries": 1}],
    "placebo": [
        {"keep": "norm"},
        {"of": {"name": "impulse", "kernel_size": 5, "position_scale": 2.0}},
        {"of": {"name": "impulse", "pseudo_input": "images", "per_layer": True, "weight_norm": 3.0}},
    ],
}
"""Further parameters to run the contract with; every initialiser runs with its defaults anyway."""


def named(name: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"name": name, **registry.get(name).tiny, **(params or {})}


def fits(name: str, arch: str) -> bool:
    try:
        registry.build_named(named(name)).check(model(ARCHS[arch]))
    except vitinit.VitinitError:
        return False
    return True


FITTING = {name: [arch for arch in ARCHS if fits(name, arch)] for name in registry.names()}


def cases(archs: int = 3) -> list[Any]:
    """Every initialiser on some families that it fits and with all of its parameters; methods over bases in turn."""
    combinations: list[Any] = []
    for number, (name, fitting) in enumerate(FITTING.items()):
        params = [{}, *PARAMETERS.get(name, [])]
        for i in range(max(min(len(fitting), archs), len(params))):
            base = BASES[len(combinations) % len(BASES)] if name in METHODS else name
            given, arch = params[i % len(params)], fitting[(number + i) % len(fitting)]
            combinations.append(pytest.param(base, name, given, arch, id=f"{name}-{i}-{arch}-{base}"))
    return combinations


@pytest.mark.parametrize(("base", "name", "params", "arch"), cases())
def test_the_seed_alone_decides_and_nothing_else_is_changed(
    base: str, name: str, params: dict[str, Any], arch: str
) -> None:
    """A base sets all, a method what it declares, whatever was there and whatever the global generators."""
    asked, is_method = named(name, params), name in METHODS

    def started(built: int, seed: int, there: float) -> tuple[Any, set[str]]:
        m = model(ARCHS[arch], seed=built).train(built == 1)
        for parameter in m.parameters():
            parameter.detach().fill_(there)
        for set_seed in (torch.manual_seed, np.random.seed, random.seed):
            set_seed(built)
        around = facts(m), global_state()
        if is_method:
            vitinit.initialize(m, base=base, seed=1)
        plain, given = state(m), {"method": asked} if is_method else {"base": asked}
        report = vitinit.initialize(m, **given, seed=seed, batch=images(4))
        assert (facts(m), global_state()) == around
        changed = differing(plain, state(m))
        assert {change.name for change in report.changes} == changed
        return m, changed

    with torch.random.fork_rng(devices=[]):
        (m, changed), (again, _), (other, _) = (
            started(*how) for how in ((1, 5, float("nan")), (2, 5, 7.0), (2, 6, 7.0))
        )
    first = state(m)
    assert all(value.isfinite().all() for value in first.values())
    assert differing(first, state(again)) == set()
    if name not in ("sinusoidal", "zero"):  # which draw learned positions alone
        assert (differing(first, state(other)) == set()) == registry.get(name).deterministic
    assert m.eval()(images()).isfinite().all()
    assert m.forward_features(images()).std(0).max() > 0, "two images differ, at some tokens at least"
    assert changed or (base == "zero" and name in ("zero_branch", "depth_scaled")), "which starts with zero branches"


@pytest.mark.parametrize("name", registry.names())
def test_an_initializer_is_a_value(name: str) -> None:
    """Records and run ids rest on this."""
    cls = registry.get(name)
    made, fields = cls(), cls.model_fields
    assert (cls.name, cls.kind in ("base", "method")) == (name, True)
    assert all(not field.is_required() for field in fields.values())
    assert registry.build(name, made.model_dump(mode="json")) == made
