"""The three solvers of impulse initialisation against paper-facts 1.6 and 2.5.

Expected values are computed here, in numpy float64, from the published formulas.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from impulse_helpers import (
    SMALL_OFFSETS,
    adam_by_hand,
    impulse,
    random_pseudo_input,
    solve,
    svd_by_hand,
)
from small_models import JOB, VIT, f64, generator, layer_norm, loop_targets, qkv_rows

from vitinit.initializers.methods.impulse.solvers import Gradient, Problem, Rotation, Svd
from vitinit.initializers.targets import target_positions

# --- gradient solver, 1.6 items 4 to 7 -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rank", "dtype", "tolerance"), [(5, torch.float64, 1e-10), (24, torch.float64, 1e-10), (5, torch.float32, 1e-4)]
)
def test_gradient_of_many_layers_equals_a_loop_over_layers_and_heads(
    rank: int, dtype: torch.dtype, tolerance: float
) -> None:
    """201 steps, so that Q and K are rescaled three times; weights are about 0.3 and move by about 0.1 (lr 1e-3)."""
    grid, width, features = (5, 6), 24, 8
    numbers = np.random.default_rng(0)
    pseudo = layer_norm(numbers.standard_normal((30, rank)) @ numbers.standard_normal((rank, width)))
    assert np.linalg.matrix_rank(pseudo) == min(rank, width - 1)
    offsets_LH = [[(0, 1), (0, 0), (-1, -1)], [(1, 0), (-2, 1), (0, 1)], [(1, 1), (0, -1), (2, 2)]]
    solver, g = Gradient(lr=1e-3), generator(7)
    pseudo_ND = torch.tensor(pseudo, dtype=dtype)
    draws = [solver.draw(pseudo_ND, 3, features, g) for _ in offsets_LH]
    steps = 201
    positions_LHN2 = torch.stack([target_positions(grid, offsets) for offsets in offsets_LH])
    query, key = Gradient(lr=1e-3, steps=steps).solve(Problem(pseudo_ND, grid, features, positions_LHN2, draws), JOB)
    for layer, offsets in enumerate(offsets_LH):
        query_0, key_0 = (f64(part) for part in draws[layer])
        expected = adam_by_hand(
            f64(pseudo_ND), loop_targets(*grid, offsets), query_0, key_0.transpose(0, 2, 1), steps, 1e-3
        )
        np.testing.assert_allclose(f64(query[layer]).transpose(0, 2, 1), expected[0], atol=tolerance)
        np.testing.assert_allclose(f64(key[layer]), expected[1], atol=tolerance)
        assert np.abs(expected[0] - query_0).max() > 0.05


# --- svd solver, 2.5 -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tokens_by", "params"), [((6, 7), {}), ((3, 4), {"norm": 2.0, "signal": 100.0, "noise": 2.0, "noise_std": 0.9})]
)
def test_svd_equals_the_formula_on_a_random_pseudo_input(tokens_by: tuple[int, int], params: Any) -> None:
    features, width, norm = 6, 24, params.get("norm", 7.0)
    pseudo = random_pseudo_input(math.prod(tokens_by), width)
    query, key = solve(Svd(**params), torch.tensor(pseudo).float(), tokens_by, SMALL_OFFSETS, features, generator(5))
    expected = svd_by_hand(pseudo, loop_targets(*tokens_by, SMALL_OFFSETS), features, generator(5), **params)
    for h in range(len(SMALL_OFFSETS)):
        q, k = f64(query[h]).T, f64(key[h])
        # products, because a pair of singular vectors may have either sign
        np.testing.assert_allclose(q @ k, expected[0][h] @ expected[1][h], atol=1e-4 * norm**2)
        np.testing.assert_allclose(q @ q.T, expected[0][h] @ expected[0][h].T, atol=1e-4 * norm**2)
        np.testing.assert_allclose(k.T @ k, expected[1][h].T @ expected[1][h], atol=1e-4 * norm**2)
        assert abs(np.linalg.norm(q) - norm) < 1e-5 * norm
        assert abs(np.linalg.norm(k) - norm) < 1e-5 * norm


# --- rotation solver -----------------------------------------------------------------------------------------------


def code(row: float, column: float, features: int, width: int) -> list[float]:
    """Sines and cosines of row and column at the features/4 highest bands 10000^(-i/(D/4))."""
    values: list[float] = []
    for i in range(features // 4):
        band = 10000 ** (-i / (width / 4))
        values += [math.sin(row * band), math.sin(column * band), math.cos(row * band), math.cos(column * band)]
    return values


@pytest.mark.parametrize(("features", "ridge", "temperature"), [(8, 1.0, 5.0), (6, 0.1, 20.0), (4, 30.0, 1.0)])
def test_rotation_equals_ridge_regression_by_least_squares(features: int, ridge: float, temperature: float) -> None:
    rows, columns, width = 5, 4, 16
    pseudo = random_pseudo_input(rows * columns, width)
    offsets, unused = [(0, 0), (1, -2), (-1, 1)], generator()
    solver = Rotation(ridge=ridge, temperature=temperature)
    query, key = solve(solver, torch.tensor(pseudo).float(), (rows, columns), offsets, features, unused)
    # ridge regression is least squares with sqrt(ridge) I stacked under P and zeros under the codes
    stacked = np.vstack([pseudo, math.sqrt(ridge) * np.eye(width)])

    def fit(m: int, n: int) -> np.ndarray:
        wanted = [code(r + m, c + n, features, width) for r in range(rows) for c in range(columns)]
        wanted += [[0.0] * (4 * (features // 4))] * width
        return math.sqrt(temperature) * np.linalg.lstsq(stacked, np.array(wanted), rcond=None)[0]

    assert torch.equal(unused.get_state(), generator().get_state()), "nothing is drawn"
    for h, offset in enumerate(offsets):
        q, k = fit(*offset), fit(0, 0)
        assert query[h].shape == key[h].shape == (features, width)
        np.testing.assert_allclose(f64(query[h]).T @ f64(key[h]), q @ k.T, atol=1e-4)
        assert abs(np.linalg.norm(f64(query[h])) - np.linalg.norm(q)) < 1e-4
        assert abs(np.linalg.norm(f64(key[h])) - np.linalg.norm(k)) < 1e-4


def test_rotation_gives_keys_the_norm_of_pytorchs_default_unless_told_otherwise() -> None:
    _, key, _ = qkv_rows(impulse(VIT))
    np.testing.assert_allclose(np.linalg.norm(key, axis=(1, 2)), math.sqrt(12 / 3), rtol=1e-5)
