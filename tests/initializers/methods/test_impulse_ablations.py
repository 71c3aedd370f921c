"""Pseudo-inputs, controls, halves and weight norms of `impulse`, each worked out again from what was drawn."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from impulse_helpers import SMALL_GRID, SMALL_OFFSETS, random_pseudo_input, solve
from small_models import (
    VIT,
    VIT_TOKEN,
    applied,
    differing,
    f64,
    generator,
    images,
    layer_norm,
    loop_targets,
    model,
    qkv_rows,
    silent,
    softmax,
    state,
    streams,
)

import vitinit
from vitinit.benchmark.grids.fitting import resolve_initializer
from vitinit.initializers import registry
from vitinit.initializers.errors import VitinitError
from vitinit.initializers.initialize import initialize
from vitinit.initializers.methods.impulse.solvers import Gradient, Problem, Rotation, Svd
from vitinit.initializers.registry import Initializer, Resources, register
from vitinit.initializers.targets import Control, broken, target_matrices, target_positions

GRID, HEADS, D_H, WIDTH = (8, 8), VIT.heads, VIT.width // VIT.heads, VIT.width
DEEP = VIT.model_copy(update={"depth": 4})


def impulse(spec: Any, seed: int = 0, **params: Any) -> Any:
    m = applied(model(spec), "kaiming_uniform", 99)
    method = registry.build("impulse", params)
    method.apply_with(m, generator(seed), silent, Resources(training_images=lambda count: images(count, seed=seed)))
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
    same = [(0, 1), (0, 1)]
    first, second = broken(target_positions(SMALL_GRID, same), "shuffled_rows", SMALL_GRID, generator())
    assert not torch.equal(first, second)


def test_random_binary_has_as_many_ones_in_each_row_anywhere_in_it() -> None:
    before, after = control_matrices("random_binary")
    np.testing.assert_array_equal(before.sum(-1), after.sum(-1))
    assert set(np.unique(after)) == {0.0, 1.0}
    many = target_positions(SMALL_GRID, [(0, 0)] * 2000)
    keys = target_matrices(SMALL_GRID, broken(many, "random_binary", SMALL_GRID, generator())).argmax(-1)
    counts, tokens = Counter(keys.flatten().tolist()), math.prod(SMALL_GRID)
    expected = keys.numel() / tokens
    chi_square = sum((counts[token] - expected) ** 2 / expected for token in range(tokens))
    assert chi_square < tokens - 1 + 5 * math.sqrt(2 * (tokens - 1))


def test_constant_offset_is_the_first_head_s_in_every_head_and_no_control_draws_nothing() -> None:
    before, after = control_matrices("constant_offset")
    np.testing.assert_array_equal(after, before[:1].repeat(len(before), 0))
    g = generator(4)
    unused = g.get_state()
    positions = broken(target_positions(SMALL_GRID, SMALL_OFFSETS), "none", SMALL_GRID, g)
    np.testing.assert_array_equal(target_matrices(SMALL_GRID, positions), before)
    assert torch.equal(g.get_state(), unused)


@pytest.mark.parametrize("control", ["shuffled_rows", "random_binary", "constant_offset"])
def test_rotation_solves_for_the_codes_of_the_broken_targets(control: Control) -> None:
    """The other solvers get no more than the matrices of the targets, broken or not."""
    width, features = 24, 8
    pseudo = random_pseudo_input(math.prod(SMALL_GRID), width)
    positions = broken(target_positions(SMALL_GRID, SMALL_OFFSETS), control, SMALL_GRID, generator(1))
    targets = control_matrices(control, seed=1)[1]
    solver = Rotation(ridge=0.5, temperature=2.0)
    solved = solver.solve(Problem(torch.tensor(pseudo), SMALL_GRID, features, positions[None], []), silent)
    query, key = f64(solved[0][0]).transpose(0, 2, 1), f64(solved[1][0])
    frequency = 10000.0 ** (-np.arange(2) / (width / 4))

    def code(token: int) -> list[float]:
        angles = [place * f for place in divmod(token, SMALL_GRID[1]) for f in frequency]
        return [*np.sin(angles), *np.cos(angles)]

    stacked = np.vstack([pseudo, np.sqrt(0.5) * np.eye(width)])
    for h in range(len(SMALL_OFFSETS)):
        rows = targets[h].any(-1)
        if control == "random_binary":  # a query without a target is to have the code zero
            wanted = np.array([code(int(row.argmax())) if row.any() else [0.0] * features for row in targets[h]])
            fit = np.sqrt(2) * np.linalg.lstsq(stacked, np.vstack([wanted, np.zeros((width, features))]), rcond=None)[0]
            np.testing.assert_allclose(query[h], fit, atol=1e-10)
        attention = softmax(50 * pseudo @ query[h] @ key[h] @ pseudo.T)
        assert (attention.argmax(-1) == targets[h].argmax(-1))[rows].all()


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


@pytest.mark.parametrize(("first", "later"), [("position", "uniform"), ("normal", "position"), ("position", "images")])
def test_another_pseudo_input_later_is_one_more_solution_for_all_later_layers(first: str, later: str) -> None:
    m, g = impulse(DEEP, 6, pseudo_input=first, pseudo_input_later=later), generator(6)
    offsets = [drawn_offsets(g), drawn_offsets(g)]
    for layer, kind in enumerate((first, later)):
        pseudo = received(m, images(1, seed=6), layer) if kind == "images" else by_hand(kind, m, g)
        assert_solved(m, layer, ROTATION, pseudo, offsets[layer], g)
    for earlier, next_one in pairwise(range(1, DEEP.depth)):
        np.testing.assert_array_equal(qkv_rows(m, earlier)[0], qkv_rows(m, next_one)[0])


def test_per_layer_every_layer_has_noise_of_its_own() -> None:
    m = impulse(DEEP, 6, pseudo_input="position", pseudo_input_later="position+uniform", per_layer=True)
    g = generator(6)
    offsets = [drawn_offsets(g) for _ in range(DEEP.depth)]
    for layer in range(DEEP.depth):
        pseudo = by_hand("position+uniform" if layer else "position", m, g)
        assert_solved(m, layer, ROTATION, pseudo, offsets[layer], g)


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


def test_one_image_of_a_user_is_that_of_every_layer_and_without_one_there_is_no_such_pseudo_input() -> None:
    once, twice, ours = model(VIT), model(VIT), {"method": "impulse", "pseudo_input": "images", "per_layer": True}
    vitinit.initialize(once, base="trunc_normal", images=images(1), **ours)
    vitinit.initialize(twice, base="trunc_normal", images=images(1).expand(2, -1, -1, -1), **ours)
    assert differing(state(once), state(twice)) == set()


@pytest.mark.parametrize(
    "params",
    [{"control": "shuffled_rows", "weight_norm": 10.0}, {"pseudo_input": "uniform", "weight_norm": 6.0}],
    ids=lambda params: next(iter(params)),
)
def test_the_record_measures_against_the_broken_targets_and_on_what_was_solved_on(params: dict[str, Any]) -> None:
    m, method = model(VIT), registry.build("impulse", params)
    report, _ = initialize(m, registry.build("kaiming_uniform", {}), method, streams(0), images())
    g = streams(0)("init/method")
    if "control" in params:
        aim: Any = method.apply(model(VIT), g, silent)
        pseudo, targets = layer_norm(f64(m.pos_embed)[0]), f64(aim.targets_LHNN[0])
    else:
        targets = loop_targets(*GRID, drawn_offsets(g))
        pseudo = by_hand("uniform", m, g)
    query, key, _ = qkv_rows(m)
    attention = np.stack([softmax(pseudo @ q.T @ k @ pseudo.T / np.sqrt(D_H)) for q, k in zip(query, key, strict=True)])
    assert report.pseudo_input.mass == pytest.approx((attention * targets).sum(-1)[targets.any(-1)].mean(), rel=1e-3)
    assert report.pseudo_input.mass > 2 / 64, "twice that of uniform attention; 12 features do not hold more of it"


# --- halves and norms ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("value_proj", "noise"), [("mimetic", "normal"), ("released", "uniform")])
def test_value_proj_is_mimetic_s_and_leaves_query_and_key(value_proj: str, noise: str) -> None:
    m, plain, g = impulse(VIT, 1, value_proj=value_proj), impulse(VIT, 1), generator(1)
    drawn_offsets(g)
    mimetic = model(VIT)
    registry.build("mimetic", {"parts": "vo", "noise": noise}).apply(mimetic, g, silent)
    for layer in range(VIT.depth):
        query, key, value = qkv_rows(m, layer)
        np.testing.assert_array_equal(query, qkv_rows(plain, layer)[0])
        np.testing.assert_array_equal(key, qkv_rows(plain, layer)[1])
        np.testing.assert_array_equal(value, qkv_rows(mimetic, layer)[2])
        path = value.reshape(WIDTH, WIDTH).T @ f64(m.blocks[layer].attn.proj.weight).T
        assert abs(np.diag(path).mean() + 0.4) < 0.04, "x W_v^T W_proj^T is 0.4 Z - 0.4 I (paper-facts 2.5)"
        off_diagonal = path[~np.eye(WIDTH, dtype=bool)]
        assert abs(off_diagonal.std() - 0.4 / np.sqrt(WIDTH)) < 0.004
        assert (np.abs(off_diagonal).max() <= 0.4 * np.sqrt(3 / WIDTH) + 1e-6) == (noise == "uniform")


@pytest.mark.parametrize("solver", [Rotation(), Svd(), Gradient(steps=0)], ids=lambda solver: solver.name)
def test_weight_norm_scales_every_head_and_turns_none(solver: Any) -> None:
    plain = impulse(VIT, 1, solver=solver.model_dump())
    for norm in (1.0, 12.0):
        scaled = impulse(VIT, 1, solver=solver.model_dump(), weight_norm=norm)
        for a, b in zip(qkv_rows(plain)[:2], qkv_rows(scaled)[:2], strict=True):
            np.testing.assert_allclose(np.linalg.norm(b, axis=(1, 2)), norm, rtol=1e-5)
            cosine = (a * b).sum((1, 2)) / np.linalg.norm(a, axis=(1, 2)) / norm
            np.testing.assert_allclose(cosine, 1, rtol=1e-5)


# --- identity ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "neutral", "other"),
    [
        ("impulse", {"pseudo_input": "position"}, {"pseudo_input": "images"}),
        ("impulse", {"control": "none"}, {"control": "random_binary"}),
        ("impulse", {"value_proj": "none"}, {"value_proj": "mimetic"}),
        ("impulse", {"weight_norm": None}, {"weight_norm": 2.0}),
        ("mimetic", {"parts": "both"}, {"parts": "vo"}),
    ],
)
def test_a_neutral_parameter_leaves_the_spec_as_it_was(name: str, neutral: Any, other: Any) -> None:
    twice = resolve_initializer({"name": "impulse", "pseudo_input": "normal", "pseudo_input_later": "normal"}, "method")
    assert twice == resolve_initializer({"name": "impulse", "pseudo_input": "normal"}, "method")
    before = resolve_initializer({"name": name}, "method")
    assert resolve_initializer({"name": name, **neutral}, "method") == before
    assert not neutral.keys() & before.params.keys()
    assert resolve_initializer({"name": name, **other}, "method").params == {**before.params, **other}


@pytest.mark.parametrize("wrong", [{"gain": 2.0}, {"grain": 1.0}])
def test_later_must_be_the_default_of_a_parameter(wrong: dict[str, Any]) -> None:
    """What a record leaves out is filled in with the default."""

    class Late(Initializer):
        name: ClassVar[str] = "late"
        touches: ClassVar[tuple[str, ...]] = ("*",)
        later: ClassVar[dict[str, Any]] = wrong

        gain: float = 1.0

    with pytest.raises(VitinitError, match=rf"Late: `later` names '{next(iter(wrong))}'"):
        register(Late)
