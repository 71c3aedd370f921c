"""What every initialiser promises; a new file in the registry is tested here with no edit."""

from __future__ import annotations

import fnmatch
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from small_models import ARCHS, differing, generator, images, larger_checkpoint, model, silent, state, streams

from benchmark.grids.resolve import resolve_model
from initializers import registry
from initializers.errors import VitinitError
from initializers.initialize import initialize
from initializers.registry import Initializer, Resources

BASES = registry.names("base")
METHODS = registry.names("method")

PARAMETERS: dict[str, list[dict[str, Any]]] = {
    "jax_vit": [{"qkv": "fused", "head_bias": -2.0, "position_std": 0.02}],
    "orthogonal": [{"qkv": "fused", "gain": 2.0}, {"qkv": "per_head"}],
    "spectral": [{"draw": "normal"}],
    "sinusoidal": [{"qkv": "fused", "variance": "fan_in"}],
    "zero": [{"hadamard": "paper", "last_of_branch": "identity"}],
    "mimetic": [{"noise": "uniform", "vproj_order": "released"}, {"parts": "qk"}, {"parts": "vo", "mlp_mean": 0.01}],
    "impulse": [
        {"solver": "svd", "offsets": "fixed", "per_layer": True, "position_scale": 18.0, "value_proj": "released"},
        {"solver": {"name": "gradient", "steps": 3}, "kernel_size": 5},
        {"pseudo_input": "images", "per_layer": True, "value_proj": "mimetic", "control": "shuffled_rows"},
        {"pseudo_input_later": "position+normal", "solver": "svd", "control": "random_binary", "weight_norm": 3.0},
        {"pseudo_input": "uniform", "control": "constant_offset"},
    ],
    "convit_gpsa": [
        {"train_gating": False, "gate": 0.0},
        {"conv_init": False},
        {"train_gating": False, "train_gpsa": False},
    ],
    "conv_filters": [
        {"filter": "random"},
        {"filter": "box", "entries": 4, "frozen": False},
        {"filter": "gaussian", "variance": 0.5},
    ],
    "conditioned": [{"value": "slices"}, {"value": "keep", "scale": "base"}],
    "dct": [{"matrix": "query"}, {"matrix": "value"}],
    "depth_scaled": [{"rule": "gpt2"}],
    "lsuv": [{"images": 3, "center": True, "tries": 1}],
    "weight_selection": [{"qkv": "per_matrix"}],
    "placebo": [
        {"keep": "norm"},
        {"keep": "entropy"},
        {"of": {"name": "impulse", "kernel_size": 5, "position_scale": 2.0}},
        {"of": {"name": "impulse", "pseudo_input": "images", "per_layer": True, "weight_norm": 3.0}, "keep": "entropy"},
    ],
}
"""Further parameters to run the contract with; every initialiser runs with its defaults anyway."""

NEEDED: dict[str, dict[str, Any]] = {"weight_selection": {"weights": str(larger_checkpoint())}}
"""What no default can stand for: it must be given."""
RESOURCES = Resources(training_images=images)


def build(name: str, params: dict[str, Any] | None = None) -> Initializer:
    return registry.build(name, {**NEEDED.get(name, {}), **(params or {})})


def parts(name: str, params: dict[str, Any], base: str = "trunc_normal") -> tuple[Initializer, Initializer | None]:
    """Base and method to run: the initialiser itself, over `base` when it is a method."""
    made = build(name, params)
    return (made, None) if made.kind == "base" else (build(base), made)


def fits(name: str, arch: str) -> bool:
    try:
        build(name).check(model(ARCHS[arch]))
    except VitinitError:
        return False
    return True


FITTING = [(name, arch) for name in registry.names() for arch in ARCHS if fits(name, arch)]
CASES = [
    pytest.param(name, params, arch, id=f"{name}-{i}-{arch}")
    for name, arch in FITTING
    for i, params in enumerate([{}, *PARAMETERS.get(name, [])])
]
METHOD_CASES = [case for case in CASES if case.values[0] in METHODS]


def fresh(name: str, params: dict[str, Any], arch: str, seed: int, built: int = 0, base: str = "trunc_normal") -> Any:
    m = model(ARCHS[arch], seed=built)
    initialize(m, *parts(name, params, base), streams(seed), resources=RESOURCES)
    return m


@contextmanager
def global_seed(seed: int) -> Iterator[None]:
    before = torch.get_rng_state(), np.random.get_state(), random.getstate()
    torch.manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)
    yield
    torch.set_rng_state(before[0])
    np.random.set_state(before[1])
    random.setstate(before[2])


def global_draws() -> tuple[float, float, float]:
    return float(torch.rand(())), float(np.random.rand()), random.random()


def test_registry_holds_the_methods_of_the_papers() -> None:
    assert {"kaiming_uniform", "trunc_normal"} <= set(BASES)
    assert {"mimetic", "impulse", "convit_gpsa", "conv_filters"} <= set(METHODS)
    assert set(BASES) | set(METHODS) == set(registry.names())
    assert not set(BASES) & set(METHODS)


@pytest.mark.parametrize("name", registry.names())
def test_builds_from_defaults_and_from_its_own_dump(name: str) -> None:
    cls = registry.get(name)
    made = cls()
    assert cls.name == name
    assert cls.kind in ("base", "method")
    assert cls.touches
    assert all(not field.is_required() for field in cls.model_fields.values())
    assert build(name, made.model_dump(mode="json")) == made, "records and run ids rest on this"


@pytest.mark.parametrize("name", registry.names())
def test_parameters_that_came_later_are_recorded_only_away_from_their_defaults(name: str) -> None:
    cls = registry.get(name)
    made = cls()
    assert made.recorded_params().keys() == cls.model_fields.keys() - cls.later.keys()
    assert build(name, made.recorded_params()) == made


@pytest.mark.parametrize("name", registry.names())
def test_is_frozen(name: str) -> None:
    made = build(name)
    for field in type(made).model_fields:
        with pytest.raises(ValidationError):
            setattr(made, field, getattr(made, field))


@pytest.mark.parametrize("name", registry.names())
def test_unknown_parameter_is_refused_by_name(name: str) -> None:
    with pytest.raises(VitinitError, match="no_such_parameter") as caught:
        build(name, {"no_such_parameter": 1})
    message = str(caught.value)
    assert name in message
    assert "\n" not in message
    for field in registry.get(name).model_fields:
        assert field in message, "the error lists what is allowed"


@pytest.mark.parametrize(("name", "params", "arch"), CASES)
def test_same_seed_gives_the_same_bits_whatever_the_global_generators(
    name: str, params: dict[str, Any], arch: str
) -> None:
    states = []
    for other in (1, 2):
        with global_seed(other):
            states.append(state(fresh(name, params, arch, seed=5, built=other)))
    assert differing(*states) == set()


@pytest.mark.parametrize(("name", "arch"), FITTING)
def test_another_seed_gives_other_bits_unless_nothing_is_drawn(name: str, arch: str) -> None:
    base, method = parts(name, {})
    states, drawn = [], False
    for seed in (1, 2):
        m = model(ARCHS[arch])
        build("trunc_normal").apply(m, generator(0), silent)
        given = generator(seed)
        (method or base).apply_with(m, given, silent, RESOURCES)
        drawn |= not torch.equal(given.get_state(), generator(seed).get_state())
        states.append(state(m))
    assert (differing(*states) == set()) == (not drawn)
    assert not (drawn and registry.get(name).deterministic)


@pytest.mark.parametrize(("name", "params", "arch"), CASES)
def test_leaves_the_global_generators_alone(name: str, params: dict[str, Any], arch: str) -> None:
    m = model(ARCHS[arch])
    with global_seed(3):
        expected = global_draws()
    with global_seed(3):
        initialize(m, *parts(name, params), streams(0), images(), silent, RESOURCES)
        assert global_draws() == expected


@pytest.mark.parametrize(
    ("base", "name", "params", "arch"),
    [
        pytest.param(base, *case.values, id=f"{base}-{case.id}")
        for case in METHOD_CASES
        for base in (BASES if case.values[1] == {} else ["trunc_normal"])
    ],
)
def test_method_changes_only_what_it_declares_and_leaves_it_finite(
    name: str, params: dict[str, Any], arch: str, base: str
) -> None:
    m = model(ARCHS[arch])
    build(base).apply(m, streams(0)("init/base"), silent)
    before = state(m)
    method = build(name, params)
    method.apply_with(m, streams(0)("init/method"), silent, RESOURCES)
    changed = differing(before, state(m))
    assert changed or (base == "zero" and name in ("zero_branch", "depth_scaled")), "which starts with zero branches"
    assert {n for n in changed if not any(fnmatch.fnmatchcase(n, p) for p in method.touches)} == set()
    assert all(value.isfinite().all() for value in m.state_dict().values())


@pytest.mark.parametrize("name", registry.names())
def test_every_pattern_of_touches_names_a_parameter_of_some_model(name: str) -> None:
    resmlp = resolve_model({"preset": "resmlp_micro", "image_size": 32, "patch_size": 4})
    known = {n for spec in (*ARCHS.values(), resmlp) for n in model(spec).state_dict()}
    for pattern in registry.get(name).touches:
        assert fnmatch.filter(known, pattern), pattern


@pytest.mark.parametrize("keep", ["spectrum", "norm"])
@pytest.mark.parametrize(("name", "arch"), [(n, arch) for n, arch in FITTING if n in METHODS and n != "placebo"])
def test_a_method_has_a_placebo_that_sets_the_same_to_the_same_norms_unless_it_sets_zeros(
    name: str, arch: str, keep: str
) -> None:
    params = {"of": {"name": name, **NEEDED.get(name, {})}, "keep": keep}
    base, theirs = (state(fresh(*which, arch, seed=0)) for which in (("trunc_normal", {}), (name, {})))
    zeros = all(not theirs[tensor].any() for tensor in differing(base, theirs) if theirs[tensor].ndim > 1)
    patterned = build(name, NEEDED.get(name, {})).patterned(model(ARCHS[arch]))
    assert not (zeros and patterned)
    if not patterned:
        with pytest.raises(VitinitError, match=rf"'placebo': '{name}' gives no weight of \w+ a pattern"):
            build("placebo", params).check(model(ARCHS[arch]))
        return
    build("placebo", params).check(model(ARCHS[arch]))
    placebo = state(fresh("placebo", params, arch, seed=0))
    assert differing(theirs, placebo)
    assert differing(base, placebo) <= differing(base, theirs)
    for tensor in differing(base, theirs):
        assert torch.linalg.norm(placebo[tensor]) == pytest.approx(float(torch.linalg.norm(theirs[tensor])), rel=1e-4)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("name", BASES)
def test_base_sets_every_parameter_whatever_was_there(name: str, arch: str) -> None:
    states = []
    for built in (1, 2):
        m = model(ARCHS[arch], seed=built)
        with torch.no_grad():
            for parameter in m.parameters():
                parameter.fill_(float("nan") if built == 1 else 7.0)
        build(name).apply(m, streams(0)("init/base"), silent)
        assert all(parameter.isfinite().all() for parameter in m.parameters())
        assert all(parameter.requires_grad for parameter in m.parameters())
        states.append(state(m))
    assert differing(*states) == set()


@pytest.mark.parametrize(("name", "arch"), FITTING)
def test_the_model_gives_finite_outputs(name: str, arch: str) -> None:
    assert fresh(name, {}, arch, seed=0)(images()).isfinite().all()


@pytest.mark.parametrize(("name", "arch"), [(n, a) for n in registry.names() for a in ARCHS if (n, a) not in FITTING])
def test_a_refusal_is_one_line_before_anything_is_changed(name: str, arch: str) -> None:
    m = model(ARCHS[arch])
    before = state(m)
    with pytest.raises(VitinitError) as caught:
        initialize(m, *parts(name, {}), streams(0))
    assert "\n" not in str(caught.value)
    assert name in str(caught.value)
    assert differing(before, state(m)) == set()


def test_bases_fit_every_architecture_and_methods_those_that_have_what_they_set() -> None:
    for name in ("kaiming_uniform", "trunc_normal"):
        assert {arch for n, arch in FITTING if n == name} == set(ARCHS)
    for name in ("mimetic", "impulse"):
        assert {arch for n, arch in FITTING if n == name} == set(ARCHS) - {"convmixer", "mixer"}
    assert [arch for n, arch in FITTING if n == "convit_gpsa"] == ["convit"]
    assert [arch for n, arch in FITTING if n == "conv_filters"] == ["convmixer"]
    assert [arch for n, arch in FITTING if n == "impulse_mixing"] == ["mixer"]


@pytest.mark.parametrize("name", registry.names())
def test_every_initializer_fits_some_architecture(name: str) -> None:
    assert any(n == name for n, _ in FITTING)


@pytest.mark.parametrize("name", METHODS)
def test_the_base_draws_the_same_numbers_under_every_method(name: str) -> None:
    arch = next(arch for n, arch in FITTING if n == name)
    base = build("kaiming_uniform")
    alone, with_method = model(ARCHS[arch]), model(ARCHS[arch], seed=9)
    initialize(alone, base, None, streams(0))
    report, _ = initialize(with_method, base, build(name), streams(0), resources=RESOURCES)
    assert differing(state(alone), state(with_method)) == set(report.method_parameters)
