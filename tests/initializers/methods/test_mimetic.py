"""Mimetic initialisation against paper-facts 3, with the noise drawn again and everything else in numpy float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from small_models import VIT, applied, f64, generator, model, qkv_rows

D, DEPTH, HEADS = VIT.width, VIT.depth, VIT.heads


def mimetic(spec: Any = VIT, seed: int = 0, **params: Any) -> Any:
    return applied(applied(model(spec), "kaiming_uniform", 99), "mimetic", seed, **params)


def noise(kind: str, width: int, g: torch.Generator) -> np.ndarray:
    """Z: N(0, 1/D), or uniform with that variance."""
    if kind == "normal":
        return f64(torch.empty(width, width).normal_(0, 1 / np.sqrt(width), generator=g))
    return f64(torch.empty(width, width).uniform_(-np.sqrt(3 / width), np.sqrt(3 / width), generator=g))


def best_of_rank(a: np.ndarray, rank: int) -> np.ndarray:
    u, s, vt = np.linalg.svd(a)
    return (u[:, :rank] * s[:rank]) @ vt[:rank]


def value_path(m: Any, layer: int = 0) -> np.ndarray:
    """The matrix M of x -> x M = x W_v^T W_proj^T."""
    _, _, value_HdD = qkv_rows(m, layer)
    return value_HdD.reshape(-1, value_HdD.shape[-1]).T @ f64(m.blocks[layer].attn.proj.weight).T


@pytest.mark.parametrize(
    ("changes", "kind", "strengths"),
    [
        ({}, "normal", (0.7, 0.7, 0.4, 0.4)),
        ({}, "uniform", (0.5, 0.9, 0.2, 0.8)),
        ({"width": 160, "heads": 10, "depth": 1}, "normal", (0.7, 0.7, 0.4, 0.4)),  # factorised in another way
        ({"width": 256, "heads": 4, "depth": 1}, "normal", (0.7, 0.7, 0.4, 0.4)),
    ],
)
def test_products_are_the_papers_for_the_noise_that_was_drawn_and_factors_share_the_singular_values(
    changes: dict[str, int], kind: str, strengths: tuple[float, ...]
) -> None:
    spec, (a_qk, b_qk, a_v, b_v) = VIT.model_copy(update=changes), strengths
    m = mimetic(spec, 7, alpha_qk=a_qk, beta_qk=b_qk, alpha_vproj=a_v, beta_vproj=b_v, noise=kind)
    g, width, d = generator(7), spec.width, spec.width // spec.heads
    for layer in range(spec.depth):
        query, key, value = qkv_rows(m, layer)
        for head in range(spec.heads):
            expected = best_of_rank(a_qk * noise(kind, width, g) + b_qk * np.eye(width), d)
            np.testing.assert_allclose(query[head].T @ key[head], expected, atol=2e-5)
            singular = np.linalg.svd(expected, compute_uv=False)[:d]
            for factor in (query[head], key[head]):
                np.testing.assert_allclose(factor @ factor.T, np.diag(singular), atol=1e-4)
        np.testing.assert_allclose(value_path(m, layer), a_v * noise(kind, width, g) - b_v * np.eye(width), atol=2e-5)
        value, proj = value.reshape(width, width), f64(m.blocks[layer].attn.proj.weight)
        np.testing.assert_allclose(value @ value.T, proj.T @ proj, atol=5e-5)


def test_released_order_is_the_transposed_product_of_the_factors_the_other_way_round() -> None:
    released = value_path(mimetic(VIT, 7, vproj_order="released"))
    g = generator(7)
    for _ in range(HEADS):
        noise("normal", D, g)
    u, s, vt = np.linalg.svd(0.4 * noise("normal", D, g) - 0.4 * np.eye(D))
    left, right = u * np.sqrt(s), np.sqrt(s)[:, None] * vt
    # a pair of singular vectors may have either sign, hence the sizes alone off the diagonal
    np.testing.assert_allclose(np.abs(released), np.abs((right @ left).T), atol=1e-4)
    np.testing.assert_allclose(np.diag(released), np.diag(right @ left), atol=1e-4)
