"""Promises of every initialiser; a new file in the registry is tested here with no edit."""

import random
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from small_models import ARCHS, differing, facts, global_state, images, model, state

import vitinit
from vitinit.initializers import registry

BASES = registry.names("base")
METHODS = registry.names("method")

PARAMETERS = yaml.safe_load(Path(__file__).with_name("parameters.yaml").read_bytes())


def named(name, params=None):
    return {"name": name, **registry.get(name).tiny, **(params or {})}


def fits(name, m):
    try:
        registry.build_named(named(name)).check(m)
    except vitinit.VitinitError:
        return False
    return True


MODELS = {arch: model(spec) for arch, spec in ARCHS.items()}
FITTING = {name: [arch for arch, m in MODELS.items() if fits(name, m)] for name in registry.names()}


def cases():
    """Every initialiser on some families that it fits and with all of its parameters; methods over bases in turn."""
    combinations = []
    for number, (name, fitting) in enumerate(FITTING.items()):
        params = [{}, *PARAMETERS.get(name, [])]
        for i in range(max(min(len(fitting), 3), len(params))):
            base = BASES[len(combinations) % len(BASES)] if name in METHODS else name
            given, arch = params[i % len(params)], fitting[(number + i) % len(fitting)]
            combinations.append(pytest.param(base, name, given, arch, id=f"{name}-{i}-{arch}-{base}"))
    return combinations


@pytest.mark.parametrize(("base", "name", "params", "arch"), cases())
def test_the_seed_alone_decides_and_nothing_else_is_changed(base, name, params, arch):
    """A base sets all, a method what it declares, whatever was there and whatever the global generators."""
    asked, is_method = named(name, params), name in METHODS

    def started(built, seed, there):
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
