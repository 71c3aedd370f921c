"""Mimetic initialisation against paper-facts 3, with the noise drawn again and everything else in numpy float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from small_models import CONVIT, VIT, differing, f64, generator, model, qkv_rows, silent, state

from initializers import registry

D, DEPTH, HEADS = VIT.width, VIT.depth, VIT.heads


def mimetic(spec: Any, seed: int = 0, **params: Any) -> Any:
    m = model(spec)
    registry.build("kaiming_uniform", {}).apply(m, generator(99), silent)
    registry.build("mimetic", params).apply(m, generator(seed), silent)
    return m


def noise(kind: str, width: int, g: torch.Generator) -> np.ndarray:
    """Z: N(0, 1/D), or uniform with that variance."""
    if kind == "normal":
        return f64(torch.empty(width, width).normal_(0, 1 / np.sqrt(width), generator=g))
    return f64(torch.empty(width, width).uniform_(-np.sqrt(3 / width), np.sqrt(3 / width), generator=g))


def best_of_rank(a: np.ndarray, rank: int) -> np.ndarray:
    u, s, vt = np.linalg.svd(a)
    result = np.zeros_like(a)
    for i in range(rank):
        result += s[i] * np.outer(u[:, i], vt[i])
    return result


def value_path(m: Any, layer: int = 0) -> np.ndarray:
    """The matrix M of x -> x M = x W_v^T W_proj^T."""
    _, _, value_HdD = qkv_rows(m, layer)
    value = value_HdD.reshape(-1, value_HdD.shape[-1])
    return value.T @ f64(m.blocks[layer].attn.proj.weight).T


@pytest.mark.parametrize(("kind", "strengths"), [("normal", (0.7, 0.7, 0.4, 0.4)), ("uniform", (0.5, 0.9, 0.2, 0.8))])
def test_products_are_the_paper_s_for_the_noise_that_was_drawn(
    kind: str, strengths: tuple[float, float, float, float]
) -> None:
    a_qk, b_qk, a_v, b_v = strengths
    m = mimetic(VIT, 7, alpha_qk=a_qk, beta_qk=b_qk, alpha_vproj=a_v, beta_vproj=b_v, noise=kind)
    g = generator(7)
    for layer in range(DEPTH):
        query, key, _ = qkv_rows(m, layer)
        for head in range(HEADS):
            expected = best_of_rank(a_qk * noise(kind, D, g) + b_qk * np.eye(D), D // HEADS)
            np.testing.assert_allclose(query[head].T @ key[head], expected, atol=2e-5)
        np.testing.assert_allclose(value_path(m, layer), a_v * noise(kind, D, g) - b_v * np.eye(D), atol=2e-5)


def test_both_factors_share_the_singular_values_evenly() -> None:
    m = mimetic(VIT)
    query, key, value = qkv_rows(m)
    for q, k in zip(query, key, strict=True):
        np.testing.assert_allclose(q @ q.T, k @ k.T, atol=2e-5)
        np.testing.assert_allclose(q @ q.T, np.diag(np.diag(q @ q.T)), atol=2e-5)
    value, proj = value.reshape(D, D), f64(m.blocks[0].attn.proj.weight)
    np.testing.assert_allclose(value @ value.T, proj.T @ proj, atol=2e-5)


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


def test_convit_gated_and_plain_layers_get_the_same_products() -> None:
    m = mimetic(CONVIT)
    for block in m.blocks:
        attn = block.attn
        weight = attn.qkv.weight if hasattr(attn, "qkv") else torch.cat([attn.qk.weight, attn.v.weight])
        query, key, value = (f64(part) for part in weight.chunk(3))
        for head in range(CONVIT.heads):
            rows = slice(head * 12, (head + 1) * 12)
            product = query[rows].T @ key[rows]
            assert np.linalg.matrix_rank(product, tol=1e-4) == 12
            assert 0.25 < np.diag(product).mean() < 0.6
        path = value.T @ f64(attn.proj.weight).T
        assert abs(np.diag(path).mean() + 0.4) < 0.04
        assert abs(path[~np.eye(48, dtype=bool)].std() - 0.4 / np.sqrt(48)) < 0.004


@pytest.mark.parametrize(("width", "heads"), [(160, 10), (256, 4)])
def test_wide_models_have_the_same_products_and_balanced_factors(width: int, heads: int) -> None:
    m = mimetic(VIT.model_copy(update={"width": width, "heads": heads, "depth": 1}))
    g, query_key = generator(), qkv_rows(m, 0)
    for head in range(heads):
        query, key = query_key[0][head], query_key[1][head]
        expected = best_of_rank(0.7 * noise("normal", width, g) + 0.7 * np.eye(width), width // heads)
        np.testing.assert_allclose(query.T @ key, expected, atol=2e-5)
        singular = np.linalg.svd(expected, compute_uv=False)[: width // heads]
        for factor in (query, key):
            np.testing.assert_allclose(factor @ factor.T, np.diag(singular), atol=1e-4)


def test_bits_do_not_depend_on_the_number_of_threads_which_is_kept() -> None:
    """Of narrow and wide models, which are factorised differently."""
    before = torch.get_num_threads()
    try:
        for changes in ({}, {"width": 320, "heads": 4, "depth": 1}):
            spec = VIT.model_copy(update=changes)
            found = {}
            for threads in (1, 3):
                torch.set_num_threads(threads)
                found[threads] = state(mimetic(spec))
                assert torch.get_num_threads() == threads
            assert differing(found[1], found[3]) == set()
    finally:
        torch.set_num_threads(before)
