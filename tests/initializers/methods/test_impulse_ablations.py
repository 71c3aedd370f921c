"""Pseudo-inputs, controls, halves and weight norms of `impulse`, each worked out again from what was drawn."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from impulse_helpers import SMALL_GRID, SMALL_OFFSETS, solve
from small_models import (
    VIT,
    VIT_TOKEN,
    applied,
    f64,
    generator,
    images,
    layer_norm,
    loop_targets,
    model,
    qkv_rows,
)

from vitinit.initializers import registry
from vitinit.initializers.methods.impulse.solvers import Gradient, Rotation, Svd
from vitinit.initializers.registry import Job
from vitinit.initializers.targets import Control, broken, target_matrices, target_positions

GRID, HEADS, D_H, WIDTH = (8, 8), VIT.heads, VIT.width // VIT.heads, VIT.width
DEEP = VIT.model_copy(update={"depth": 4})


def impulse(spec: Any, seed: int = 0, **params: Any) -> Any:
    m = applied(model(spec), "kaiming_uniform", 99)
    method = registry.build("impulse", params)
    method.apply(m, generator(seed), Job(training_images=lambda count: images(count, seed=seed)))
    return m


def drawn_offsets(g: torch.Generator) -> list[tuple[int, int]]:
    return [(k // 3 - 1, k % 3 - 1) for k in torch.randint(9, (HEADS,), generator=g).tolist()]


# --- controls ------------------------------------------------------------------------------------------------------


def control_matrices(control: Control, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """H of SMALL_OFFSETS by loops, and what the control makes of it."""
    positions = broken(target_positions(SMALL_GRID, SMALL_OFFSETS), control, SMALL_GRID, generator(seed))
    return loop_targets(*SMALL_GRID, SMALL_OFFSETS), target_matrices(SMALL_GRID, positions).numpy()


def test_shuffled_rows_are_the_rows_of_the_impulse_in_an_order_of_each_head() -> None:
    before, after = control_matrices("shuffled_rows")
    for h in range(len(before)):
        assert sorted(map(tuple, before[h])) == sorted(map(tuple, after[h]))
        assert (before[h] != after[h]).any()


def test_random_binary_has_as_many_ones_in_each_row_anywhere_in_it() -> None:
    before, after = control_matrices("random_binary")
    np.testing.assert_array_equal(before.sum(-1), after.sum(-1))
    assert set(np.unique(after)) == {0.0, 1.0}


def test_constant_offset_is_the_first_head_s_in_every_head_and_no_control_draws_nothing() -> None:
    before, after = control_matrices("constant_offset")
    np.testing.assert_array_equal(after, before[:1].repeat(len(before), 0))
    g = generator(4)
    unused = g.get_state()
    positions = broken(target_positions(SMALL_GRID, SMALL_OFFSETS), "none", SMALL_GRID, g)
    np.testing.assert_array_equal(target_matrices(SMALL_GRID, positions), before)
    assert torch.equal(g.get_state(), unused)


# --- pseudo-inputs -------------------------------------------------------------------------------------------------

ROTATION: Any = Rotation()


def by_hand(kind: str, m: Any, g: torch.Generator) -> np.ndarray:
    """A made-up pseudo-input from the formula, with the noise drawn again."""
    tokens = f64(m.pos_embed)[0] if kind.startswith("position") else np.zeros((64, WIDTH))
    if kind.endswith("uniform"):
        tokens = tokens + f64(torch.empty(64, WIDTH).uniform_(-1, 1, generator=g))
    if kind.endswith("normal"):
        noise = torch.nn.init.trunc_normal_(torch.empty(64, WIDTH), std=math.sqrt(0.5), generator=g)
        tokens = tokens + f64(noise)
    return layer_norm(tokens)


def assert_solved(m: Any, layer: int, solver: Any, pseudo: np.ndarray, offsets: Any, g: torch.Generator) -> None:
    """The layer has what the solver finds on that pseudo-input; `g` is where the solver drew from."""
    query, key = solve(solver, torch.tensor(pseudo, dtype=torch.float32), GRID, offsets, D_H, g)
    found = qkv_rows(m, layer)
    np.testing.assert_allclose(found[0], f64(query), atol=2e-4)
    np.testing.assert_allclose(found[1], f64(key), atol=2e-4)


@pytest.mark.parametrize(
    ("solver", "kind"),
    [
        (Rotation(), "position"),
        (Svd(), "uniform"),
        (Gradient(steps=20, lr=1e-3), "normal"),
        (Gradient(steps=20, lr=1e-3), "position+uniform"),
        (Svd(), "position+normal"),
    ],
)
def test_every_solver_solves_on_every_pseudo_input(solver: Any, kind: str) -> None:
    m, g = impulse(VIT, 3, solver=solver.model_dump(), pseudo_input=kind), generator(3)
    offsets = drawn_offsets(g)
    start = g.get_state()
    solver.draw(torch.empty(64, WIDTH), HEADS, D_H, g)
    pseudo = by_hand(kind, m, g)
    assert_solved(m, 0, solver, pseudo, offsets, torch.Generator().set_state(start))
    for a, b in zip(qkv_rows(m, 0)[:2], qkv_rows(m, 1)[:2], strict=True):
        np.testing.assert_array_equal(a, b)


def received(m: Any, images_BCHW: torch.Tensor, layer: int) -> np.ndarray:
    """What the attention of a layer gets from one image, by going through the blocks."""
    with torch.no_grad():
        x_BND = m._pos_embed(m.patch_embed(images_BCHW))
        for block in m.blocks[:layer]:
            x_BND = block(x_BND)
        return f64(m.blocks[layer].norm1(x_BND))[0, -64:]


@pytest.mark.parametrize(("spec", "value_proj"), [(DEEP, "mimetic"), (VIT_TOKEN, "none")])
def test_images_are_what_each_layer_gets_from_its_own_training_image(spec: Any, value_proj: str) -> None:
    m, g = impulse(spec, 2, pseudo_input="images", per_layer=True, value_proj=value_proj), generator(2)
    given = images(spec.depth, seed=2)
    offsets = [drawn_offsets(g) for _ in range(spec.depth)]
    for layer in range(spec.depth):
        assert_solved(m, layer, ROTATION, received(m, given[layer : layer + 1], layer), offsets[layer], g)
