"""Impulse initialisation against paper-facts 1.6 and 2.5: targets, offsets, and what the model gets.

Expected values are computed here, in numpy float64, from the published formulas.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from impulse_helpers import impulse
from small_models import (
    CONVIT,
    VIT,
    VIT_TOKEN,
    applied,
    f64,
    generator,
    layer_norm,
    loop_targets,
    model,
    qkv_rows,
    refused,
    state,
)

from vitinit.initializers import registry
from vitinit.initializers.methods.impulse.solvers import Gradient, Svd
from vitinit.initializers.pseudo_input import pseudo_input
from vitinit.initializers.targets import head_offsets, impulse_targets

# --- targets and offsets -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("grid", [(1, 1), (3, 5), (6, 4)])
def test_targets_equal_a_double_loop(grid: tuple[int, int]) -> None:
    offsets = [(m, n) for m in range(-2, 3) for n in range(-2, 3)]
    np.testing.assert_array_equal(impulse_targets(grid, offsets).numpy(), loop_targets(*grid, offsets))


@pytest.mark.parametrize("kernel_size", [1, 3])
def test_random_offsets_are_uniform_over_the_kernel_with_replacement(kernel_size: int) -> None:
    cells, draws = kernel_size**2, 4000 * kernel_size**2
    offsets = head_offsets(kernel_size, draws, "random", generator())
    half = kernel_size // 2
    assert {m for m, _ in offsets} == {n for _, n in offsets} == set(range(-half, half + 1))
    counts = Counter(offsets)
    assert len(counts) == cells
    chi_square = sum((count - 4000) ** 2 / 4000 for count in counts.values())
    assert chi_square < cells - 1 + 5 * math.sqrt(2 * max(cells - 1, 1))
    # with replacement: neighbouring heads agree once in `cells` pairs
    repeats = sum(a == b for a, b in zip(offsets[::2], offsets[1::2], strict=True)) / (draws / 2)
    assert abs(repeats - 1 / cells) < 5 * math.sqrt(1 / cells / (draws / 2))


def test_fixed_offsets_follow_the_order_of_2505() -> None:
    centre, up, right, left, down = (0, 0), (-1, 0), (0, 1), (0, -1), (1, 0)
    corners = [(-1, -1), (-1, 1), (1, -1), (1, 1)]
    nine = [centre, up, right, left, down, *corners]
    assert head_offsets(3, 12, "fixed", generator()) == [*nine, centre, up, right]


def test_pseudo_input_is_the_layer_norm_of_the_embedding() -> None:
    embedding = 0.1 + 0.02 * torch.randn(10, 24, generator=generator())
    np.testing.assert_allclose(f64(pseudo_input(embedding)), layer_norm(f64(embedding)), atol=1e-5)


# --- in the model --------------------------------------------------------------------------------------------------

SOLVERS: list[Any] = ["rotation", "svd", {"name": "gradient", "steps": 3}]


@pytest.mark.parametrize("solver", SOLVERS, ids=["rotation", "svd", "gradient"])
def test_one_solution_for_all_layers_or_one_each(solver: Any) -> None:
    for per_layer in (False, True):
        m = impulse(VIT, solver=solver, per_layer=per_layer)
        (query_0, key_0, _), (query_1, key_1, _) = qkv_rows(m, 0), qkv_rows(m, 1)
        assert np.array_equal(query_0, query_1) != per_layer
        # rotation has one and the same W_k for every offset
        assert np.array_equal(key_0, key_1) == (not per_layer or solver == "rotation")
    fixed = impulse(VIT, per_layer=True, offsets="fixed")
    np.testing.assert_array_equal(qkv_rows(fixed, 0)[0], qkv_rows(fixed, 1)[0])


@pytest.mark.parametrize(
    ("spec", "solver"), list(zip([VIT, VIT_TOKEN, CONVIT], SOLVERS, strict=True)), ids=["vit", "vit_token", "convit"]
)
def test_only_query_and_key_change(spec: Any, solver: Any) -> None:
    before, after = state(applied(model(spec), "kaiming_uniform", 99)), state(impulse(spec, solver=solver))
    width = spec.width
    for name in before:
        if name.endswith(("qkv.weight", "qk.weight")):
            assert not torch.equal(before[name][:width], after[name][:width])
            assert not torch.equal(before[name][width : 2 * width], after[name][width : 2 * width])
            assert torch.equal(before[name][2 * width :], after[name][2 * width :]), "rows of V"
        else:
            assert torch.equal(before[name], after[name]), name


@pytest.mark.parametrize("spec", [VIT, VIT_TOKEN], ids=["vit", "vit_token"])
def test_position_scale_multiplies_the_embedding_and_leaves_the_solution(spec: Any) -> None:
    """The class row too: 2505's code multiplies pos_embed in place (paper-facts 2.5)."""
    plain, scaled = impulse(spec), impulse(spec, position_scale=18.0)
    np.testing.assert_allclose(f64(scaled.pos_embed), 18 * f64(plain.pos_embed), rtol=1e-6)
    if spec is VIT:  # LayerNorm takes the scale out again, but for its eps: 1e-5 beside a variance of 1/2
        np.testing.assert_allclose(qkv_rows(scaled)[0], qkv_rows(plain)[0], atol=1e-3)


def test_solver_is_a_name_or_a_mapping() -> None:
    assert registry.build("impulse", {"solver": "svd"}) == registry.build("impulse", {"solver": {"name": "svd"}})

    made = registry.build("impulse", {"solver": {"name": "gradient", "steps": 7, "lr": 0.1}}).model_dump()
    assert made["solver"] == {"name": "gradient", "steps": 7, "lr": 0.1, "renormalize_every": 100}
    rotation = {"name": "rotation", "ridge": 1.0, "temperature": None}
    assert registry.build("impulse", {}).model_dump()["solver"] == rotation
    assert Gradient().model_dump() == {"name": "gradient", "steps": 10_000, "lr": 1e-4, "renormalize_every": 100}
    assert Svd().model_dump() == {"name": "svd", "signal": 1000.0, "noise": 3.0, "noise_std": 0.6, "norm": 7.0}


def test_what_does_not_fit_is_refused_by_the_parameter_that_needs_it_alone() -> None:
    small, narrow, bare = model(VIT, patch_size=16), model(VIT, width=24, heads=12), model()  # the first of 2 x 2
    bare.pos_embed = None
    refused(small, r"kernel_size 3 .* 2x2", "impulse")
    refused(narrow, r"rotation.* 4 features", "impulse")
    refused(bare, "position embedding", "impulse")
    registry.build("impulse", {"kernel_size": 1}).check(small)
    registry.build("impulse", {"solver": "svd"}).check(narrow)
    registry.build("impulse", {"kernel_size": 3}).check(model(VIT, image_size=12))
