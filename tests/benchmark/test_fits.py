"""The table of what fits what: as carrying it out says, and as a plan says."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from vitinit.benchmark.grids import fits as table
from vitinit.benchmark.grids.fits import fits, smallest
from vitinit.benchmark.grids.fitting import fit
from vitinit.benchmark.models.build import build_model
from vitinit.benchmark.models.registry import described
from vitinit.initializers import registry
from vitinit.initializers.errors import VitinitError
from vitinit.initializers.initialize import initialize
from vitinit.initializers.registry import Resources
from vitinit.initializers.streams import stream

OURS = ("convit", "convmixer", "vit")


@pytest.fixture(scope="module")
def found() -> table.Fits:
    """The whole table, asked once."""
    return fits()


def images(_: int) -> torch.Tensor:
    """Few, whatever is asked for."""
    return torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("arch", described())
def test_what_is_said_to_fit_is_carried_out_and_what_is_not_is_refused(found, arch: str) -> None:
    spec = smallest(arch)
    assert set(found["base"]) == set(registry.names("base"))
    assert set(found["method"]) == set(registry.names("method"))
    model: Any = build_model(spec, 10)
    for name, kind in [*((name, "base") for name in found["base"]), *((name, "method") for name in found["method"])]:
        verdict = {**found["base"], **found["method"]}[name][arch]
        assert bool(verdict.condition) == (name == "placebo")
        given = {
            "placebo": {"of": "lsuv"},
            "procedural": {"steps": 1, "strings": 2, "batch_size": 2},
        }
        part = registry.build(name, given.get(name, {}))
        base, method = (part, None) if kind == "base" else (registry.build("trunc_normal", {}), part)
        if verdict.misfit:
            with pytest.raises(VitinitError) as refused:
                initialize(model, base, method, lambda named: stream(0, named))
            assert verdict.misfit == str(refused.value).replace(type(model).__name__, spec.label)
        else:  # without what a record measures, which takes the longest
            for each in filter(None, (base, method)):
                each.check(model)
                each.apply_with(model, stream(0, name), lambda *_: None, Resources(training_images=images))
            assert model(images(4)).isfinite().all()
        model.requires_grad_()  # some methods freeze what they set


def test_no_family_is_without_a_base_and_none_with_attention_without_mimetic(found) -> None:
    for arch in described():
        assert not found["base"]["kaiming_uniform"][arch].misfit
        assert not found["base"]["trunc_normal"][arch].misfit
    for method in ("mimetic", "impulse"):
        assert [arch for arch in OURS if found["method"][method][arch].misfit] == ["convmixer"]


def test_a_plan_says_the_same(found) -> None:
    for method in ("mimetic", "impulse", "convit_gpsa"):
        for arch, verdict in found["method"][method].items():
            answer = fit(smallest(arch), {"name": "trunc_normal"}, {"name": method})
            assert bool(answer.misfit) == bool(verdict.misfit), (method, arch)
