"""What every initialiser promises; a new file in the registry is tested here with no edit."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from small_models import (
    ARCHS,
    differing,
    generator,
    global_state,
    images,
    model,
    state,
)

from vitinit.initializers import registry
from vitinit.initializers.errors import VitinitError
from vitinit.initializers.initialize import initialize
from vitinit.initializers.registry import Initializer, Job

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
    "conditioned": [{"value": "keep"}],
    "lsuv": [{"images": 3, "tries": 1}],
    "placebo": [
        {"keep": "norm"},
        {"of": {"name": "impulse", "kernel_size": 5, "position_scale": 2.0}},
        {"of": {"name": "impulse", "pseudo_input": "images", "per_layer": True, "weight_norm": 3.0}},
    ],
}
"""Further parameters to run the contract with; every initialiser runs with its defaults anyway."""

NEEDED: dict[str, dict[str, Any]] = {
    "lsuv": {"images": 4},
    "procedural": {"steps": 2, "strings": 8, "batch_size": 4, "kinds": 2},
    "whitened_patches": {"images": 4},
}
"""Parameters without a usable default, and smaller values of slow ones."""
JOB_WITH_IMAGES = Job(training_images=images)


def build(name: str, params: dict[str, Any] | None = None) -> Initializer:
    return registry.build(name, {**NEEDED.get(name, {}), **(params or {})})


def fits(name: str, arch: str) -> bool:
    try:
        build(name).check(model(ARCHS[arch]))
    except VitinitError:
        return False
    return True


FITTING = {name: [arch for arch in ARCHS if fits(name, arch)] for name in registry.names()}


def cases(archs: int = 3) -> list[Any]:
    """Every initialiser on some families that it fits and with all of its parameters; methods over bases in turn."""
    found: list[Any] = []
    for number, (name, fitting) in enumerate(FITTING.items()):
        params = [{}, *PARAMETERS.get(name, [])]
        for i in range(max(min(len(fitting), archs), len(params))):
            base = BASES[len(found) % len(BASES)] if name in METHODS else name
            given, arch = params[i % len(params)], fitting[(number + i) % len(fitting)]
            found.append(pytest.param(base, name, given, arch, id=f"{name}-{i}-{arch}-{base}"))
    return found


def seed_all(seed: int) -> None:
    torch.manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)


@pytest.mark.parametrize(("base", "name", "params", "arch"), cases())
def test_what_every_initializer_promises(base: str, name: str, params: dict[str, Any], arch: str) -> None:
    """The seed alone decides; all is set by a base, and by a method what it declares; nothing else is changed."""
    made = build(name, params)
    method = made if made.kind == "method" else None
    given = {"init/base": generator(1), "init/method": generator(2)}
    own = given["init/method" if method else "init/base"]
    unused = own.get_state()

    def started(built: int, seed: int, there: float, with_method: bool = True) -> tuple[Any, list[str]]:
        m = model(ARCHS[arch], seed=built).train(built == 1)
        for parameter in m.parameters():
            parameter.detach().fill_(there)
        flags = [parameter.requires_grad for parameter in m.parameters()]
        seed_all(built)
        around = global_state()
        chosen = build(base) if method else made
        given["init/base"].manual_seed(1 if method else seed)
        given["init/method"].manual_seed(seed)
        changed: list[str] = []
        if built == 1 and with_method:
            report, _ = initialize(m, chosen, method, given.__getitem__, images(), job=JOB_WITH_IMAGES)
            changed = report.method_parameters
        else:
            chosen.apply(m, given["init/base"], JOB_WITH_IMAGES)
            if method and with_method:
                method.apply(m, given["init/method"], JOB_WITH_IMAGES)
        assert global_state() == around
        assert m.training == (built == 1)
        if not (method and with_method):
            assert flags == [parameter.requires_grad for parameter in m.parameters()]
        assert {parameter.dtype for parameter in m.parameters()} == {torch.float32}
        return m, changed

    with torch.random.fork_rng(devices=[]):
        plain = state(started(1, 5, float("nan"), with_method=False)[0]) if method else {}
        own.manual_seed(5)
        unused = own.get_state()
        m, changed = started(1, 5, float("nan"))
        drawn = not torch.equal(own.get_state(), unused)
        again, other = (state(started(2, seed, 7.0)[0]) for seed in (5, 6))
    first = state(m)
    assert all(value.isfinite().all() for value in first.values())
    assert differing(first, again) == set(), "whatever was there and whatever the global generators"
    assert (differing(first, other) != set()) == drawn
    assert not (drawn and made.deterministic)
    assert m.eval()(images()).isfinite().all()
    assert m.forward_features(images()).std(0).max() > 0, "two images differ, at some tokens at least"
    if method:
        assert set(changed) == differing(plain, first), "the base draws the same under every method"
        assert changed or (base == "zero" and name in ("zero_branch", "depth_scaled")), (
            "which starts with zero branches"
        )


@pytest.mark.parametrize("name", registry.names())
def test_an_initializer_is_a_value(name: str) -> None:
    """Records and run ids rest on this."""
    cls = registry.get(name)
    made, fields = cls(), cls.model_fields
    assert cls.name == name
    assert cls.kind in ("base", "method")
    assert all(not field.is_required() for field in fields.values())
    assert build(name, made.model_dump(mode="json")) == made
    assert made.recorded_params().keys() == fields.keys() - cls.later.keys()
    assert build(name, made.recorded_params()) == made
