"""Impulse-initialised models and what their attention does, in numpy float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from small_models import JOB, applied, f64, layer_norm, model, softmax

from vitinit.initializers.methods.impulse.solvers import Problem, Solver
from vitinit.initializers.targets import Offset, target_positions

SMALL_GRID = (3, 4)
SMALL_OFFSETS = [(1, 0), (-1, -1), (0, 0)]


def impulse(spec: Any, seed: int = 0, **params: Any) -> Any:
    return applied(applied(model(spec), "kaiming_uniform", 99), "impulse", seed, **params)


def solve(
    solver: Solver,
    pseudo_ND: torch.Tensor,
    grid: tuple[int, int],
    offsets: list[Offset],
    features: int,
    g: torch.Generator,
) -> tuple[torch.Tensor, torch.Tensor]:
    """W_q and W_k of one layer, heads x d x D."""
    draws = solver.draw(pseudo_ND, len(offsets), features, g)
    positions_LHN2 = target_positions(grid, offsets)[None]
    query, key = solver.solve(Problem(pseudo_ND, grid, features, positions_LHN2, [draws]), JOB)
    return query[0], key[0]


def random_pseudo_input(tokens: int, width: int, seed: int = 0) -> np.ndarray:
    return layer_norm(np.random.default_rng(seed).standard_normal((tokens, width)))


def adam_by_hand(
    pseudo: np.ndarray,
    targets: np.ndarray,
    query: np.ndarray,
    key: np.ndarray,
    steps: int,
    lr: float,
) -> tuple[np.ndarray, np.ndarray]:
    """The loop of 2404.01139 in float64 with the gradients of softmax and MSE worked out on paper."""
    query, key = query.copy(), key.copy()
    scale = query.shape[2] ** -0.5
    n_q = np.mean([np.linalg.norm(query[h, :, c]) for h in range(len(query)) for c in range(query.shape[2])])
    moments = [np.zeros_like(x) for x in (query, query, key, key)]
    for step in range(steps):
        if step % 100 == 0:
            for h in range(len(query)):
                query[h] *= n_q / np.linalg.norm(query[h], axis=0)  # each column, over D
                key[h] *= n_q / np.linalg.norm(key[h], axis=0)  # each input feature, over d
        d_query, d_key = np.zeros_like(query), np.zeros_like(key)
        for h in range(len(query)):
            m = softmax(scale * pseudo @ query[h] @ key[h] @ pseudo.T)
            d_m = 2 * (m - targets[h]) / targets.size
            d_logits = m * (d_m - (d_m * m).sum(-1, keepdims=True))
            d_product = scale * pseudo.T @ d_logits @ pseudo  # of Q K, a D x D matrix
            d_query[h], d_key[h] = d_product @ key[h].T, query[h].T @ d_product
        for i, (value, gradient) in enumerate([(query, d_query), (key, d_key)]):
            moments[2 * i] = 0.9 * moments[2 * i] + 0.1 * gradient
            moments[2 * i + 1] = 0.999 * moments[2 * i + 1] + 0.001 * gradient**2
            mean = moments[2 * i] / (1 - 0.9 ** (step + 1))
            square = moments[2 * i + 1] / (1 - 0.999 ** (step + 1))
            value -= lr * mean / (np.sqrt(square) + 1e-8)
    return query, key


def svd_by_hand(
    pseudo: np.ndarray,
    targets: np.ndarray,
    features: int,
    g: torch.Generator,
    norm: float = 7.0,
    rank: int | None = None,
    signal: float = 1000.0,
    noise: float = 3.0,
    noise_std: float = 0.6,
) -> tuple[np.ndarray, np.ndarray]:
    """Q (heads x D x d) and K (heads x d x D) of 2505.19985's code."""
    drawn = f64(torch.nn.init.trunc_normal_(torch.empty(targets.shape), std=noise_std, generator=g))
    wanted = signal * targets + noise * drawn * (targets == 0)
    eigenvalues, eigenvectors = np.linalg.eigh(pseudo.T @ pseudo)
    top = np.argsort(eigenvalues)[::-1][: rank or features]
    inverse = sum(np.outer(eigenvectors[:, i], eigenvectors[:, i]) / eigenvalues[i] for i in top) @ pseudo.T
    queries, keys = [], []
    for w in wanted:
        u, s, vt = np.linalg.svd(inverse @ w @ inverse.T)
        q, k = u[:, :features] * np.sqrt(s[:features]), np.sqrt(s[:features])[:, None] * vt[:features]
        queries.append(q / np.linalg.norm(q) * norm)
        keys.append(k / np.linalg.norm(k) * norm)
    return np.stack(queries), np.stack(keys)
