"""Impulse-initialised models and what their attention does, in numpy float64."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from small_models import (
    f64,
    generator,
    layer_norm,
    model,
    qkv_rows,
    silent,
    softmax,
)

from initializers import registry
from initializers.impulse.solvers import Problem, Solver
from initializers.impulse.targets import Offset, target_positions
from initializers.registry import Progress

SMALL_GRID = (3, 4)
SMALL_OFFSETS = [(1, 0), (-1, -1), (0, 0)]


def impulse(spec: Any, seed: int = 0, **params: Any) -> Any:
    m = model(spec)
    registry.build("kaiming_uniform", {}).apply(m, generator(99), silent)
    registry.build("impulse", params).apply(m, generator(seed), silent)
    return m


def solve(
    solver: Solver,
    pseudo_ND: torch.Tensor,
    grid: tuple[int, int],
    offsets: list[Offset],
    features: int,
    g: torch.Generator,
    progress: Progress = silent,
) -> tuple[torch.Tensor, torch.Tensor]:
    """W_q and W_k of one layer, heads x d x D."""
    draws = solver.draw(pseudo_ND, len(offsets), features, g)
    positions_LHN2 = target_positions(grid, offsets)[None]
    query, key = solver.solve(Problem(pseudo_ND, grid, features, positions_LHN2, [draws]), progress)
    return query[0], key[0]


def random_pseudo_input(tokens: int, width: int, seed: int = 0) -> np.ndarray:
    return layer_norm(np.random.default_rng(seed).standard_normal((tokens, width)))


def position_attention(m: Any, layer: int = 0) -> np.ndarray:
    """softmax(P W_q^T W_k P^T / sqrt(d)) on the LayerNormed position embedding, heads x N x N."""
    query, key, _ = qkv_rows(m, layer)
    embedding = f64(m.pos_embed)[0]
    pseudo = layer_norm(embedding[len(embedding) - math.prod(m.patch_embed.grid_size) :])
    return np.stack([softmax(pseudo @ q.T @ k @ pseudo.T / np.sqrt(len(q))) for q, k in zip(query, key, strict=True)])


def mass_and_argmax(attention: np.ndarray, targets: np.ndarray) -> tuple[float, float]:
    masses, hits = [], []
    for a, h in zip(attention, targets, strict=True):
        for row in range(len(h)):
            if h[row].any():
                wanted = int(np.flatnonzero(h[row])[0])
                masses.append(a[row, wanted])
                hits.append(a[row].argmax() == wanted)
    return float(np.mean(masses)), float(np.mean(hits))
