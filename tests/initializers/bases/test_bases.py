"""Bases against paper-facts 1.6, the libraries that they are of, and their formulas in numpy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import scipy.linalg
import torch
from small_models import TINY, VIT, applied, f64, model
from torch import nn

WIDE = TINY.model_copy(update={"patch_size": 4})
WIDE_TOKEN = WIDE.model_copy(update={"position": "learned", "pool": "token"})
D = TINY.width
ODD = VIT.model_copy(update={"width": 60, "heads": 5})
SIGMAS = 5.0
"""Allowed sampling errors; the seeds are fixed, so a test that passes once passes always."""


def based(base: str, spec: Any, seed: int = 1, **params: Any) -> Any:
    m = model(spec)
    with torch.no_grad():
        for parameter in m.parameters():
            parameter.fill_(float("nan"))
    return applied(m, base, seed, **params)


def assert_uniform(values: np.ndarray, bound: float) -> None:
    n, std = values.size, bound / math.sqrt(3)
    assert np.abs(values).max() <= bound * (1 + 1e-6)
    assert np.abs(values).max() >= bound * (1 - 12 / n), "12/n: missed with probability e^-12"
    assert abs(values.mean()) <= SIGMAS * std / math.sqrt(n)
    # kurtosis 1.8, so the sample std errs by std * sqrt(0.8 / 4n)
    assert abs(values.std() - std) <= SIGMAS * std * math.sqrt(0.2 / n)


def assert_normal(values: np.ndarray, std: float) -> None:
    n = values.size
    assert abs(values.mean()) <= SIGMAS * std / math.sqrt(n)
    assert abs(values.std() - std) <= SIGMAS * std / math.sqrt(2 * n)
    within = (np.abs(values) < std).mean()
    assert abs(within - 0.6827) <= SIGMAS * math.sqrt(0.6827 * 0.3173 / n)


@pytest.mark.parametrize(
    ("base", "params"), [("kaiming_uniform", {}), ("trunc_normal", {}), ("trunc_normal", {"std": "kaiming"})]
)
def test_every_parameter_is_as_stated(base: str, params: dict[str, Any]) -> None:
    m = based(base, WIDE_TOKEN, **params)
    linears = [part for part in m.modules() if isinstance(part, nn.Linear)]
    assert len(linears) == 4 * WIDE_TOKEN.depth + 1
    for linear in linears:
        bound = 1 / math.sqrt(linear.in_features)
        if base == "kaiming_uniform":
            assert_uniform(f64(linear.weight), bound)
            assert_uniform(f64(linear.bias), bound)
        else:  # U(+-b) has the variance (2 b)^2 / 12
            assert_normal(f64(linear.weight), math.sqrt((2 * bound) ** 2 / 12) if params else 0.02)
            assert not linear.bias.any()
    for part in (m.patch_embed.proj.weight, m.patch_embed.proj.bias):
        assert_uniform(f64(part), 1 / math.sqrt(3 * WIDE_TOKEN.patch_size**2))
    assert all((one.weight == 1).all() and not one.bias.any() for one in m.modules() if isinstance(one, nn.LayerNorm))
    assert_normal(f64(m.pos_embed), 0.02)
    if base == "trunc_normal":
        assert_normal(f64(m.cls_token), 1e-6)
    assert torch.equal(based(base, VIT, **params).pos_embed, model(VIT).pos_embed), "sines are left alone"


def qkv(m: Any, layer: int = 0) -> list[np.ndarray]:
    """W_q, W_k and W_v, D x D."""
    return np.split(f64(m.blocks[layer].attn.qkv.weight), 3)


def xavier(matrix: np.ndarray) -> None:
    assert_uniform(matrix, math.sqrt(6 / sum(matrix.shape)))


@pytest.mark.parametrize("base", ["jax_vit", "moco_v3", "mae", "torchvision_vit"])
def test_weights_are_xavier_uniform_of_the_matrices_that_each_library_counts(base: str) -> None:
    m = based(base, WIDE_TOKEN)
    matrices = qkv(m) if base in ("jax_vit", "moco_v3") else [np.concatenate(qkv(m))]
    for matrix in [*matrices, f64(m.blocks[0].mlp.fc1.weight), f64(m.blocks[0].mlp.fc2.weight)]:
        xavier(matrix)
    proj, patch = f64(m.blocks[0].attn.proj.weight), f64(m.patch_embed.proj.weight).reshape(D, -1)
    if base == "torchvision_vit":
        assert_uniform(proj, D**-0.5)
        assert_normal(patch, patch.shape[1] ** -0.5)
    else:
        xavier(proj)
    if base in ("moco_v3", "mae"):
        xavier(patch)
        assert_normal(f64(m.cls_token), 0.02 if base == "mae" else 1e-6)
    if base == "mae":
        assert_uniform(f64(m.patch_embed.proj.bias), patch.shape[1] ** -0.5)
        assert_normal(f64(m.head.weight), 2e-5)
    else:
        assert not m.patch_embed.proj.bias.any()
    assert not m.blocks[0].attn.qkv.bias.any()
    assert not m.head.bias.any()
    if base in ("jax_vit", "torchvision_vit"):
        assert not m.head.weight.any()
        assert not m.cls_token.any()
        assert_normal(f64(m.blocks[0].mlp.fc1.bias), 1e-6)
        assert_normal(f64(m.blocks[0].mlp.fc2.bias), 1e-6)
    else:
        assert not m.blocks[0].mlp.fc1.bias.any()
    assert_normal(f64(m.pos_embed), D**-0.5 if base == "jax_vit" else 0.02)


@pytest.mark.parametrize(
    ("spec", "how", "pieces"), [(VIT, "fused", 1), (ODD, "per_matrix", 3), (ODD, "per_head", None)]
)
def test_orthogonal_rows_or_columns_of_what_is_taken_as_one_matrix(spec: Any, how: str, pieces: int | None) -> None:
    m = based("orthogonal", spec, qkv=how, gain=1.5)
    rows = np.split(f64(m.blocks[0].attn.qkv.weight), pieces or 3 * spec.heads)
    weights = [*rows, f64(m.blocks[0].mlp.fc1.weight), f64(m.blocks[1].mlp.fc2.weight), f64(m.head.weight)]
    for weight in [*weights, f64(m.patch_embed.proj.weight).reshape(spec.width, -1)]:
        np.testing.assert_allclose(np.linalg.svd(weight, compute_uv=False), 1.5, rtol=1e-5)


def test_spectral_norms_are_those_of_the_paper() -> None:
    m = based("spectral", TINY)
    for weight in [*qkv(m), f64(m.blocks[0].mlp.fc1.weight), f64(m.blocks[0].mlp.fc2.weight)]:
        wanted = math.sqrt(weight.shape[0] / weight.shape[1])
        np.testing.assert_allclose(np.linalg.svd(weight, compute_uv=False), wanted, rtol=1e-5)


def test_sines_by_loops_and_their_rank() -> None:
    m = based("sinusoidal", ODD)
    assert np.linalg.matrix_rank(qkv(m)[0], tol=1e-6) == ODD.width // 2 - 1
    for weight in (*qkv(m), f64(m.blocks[0].mlp.fc1.weight), f64(m.head.weight)):
        rows, columns = weight.shape
        i, j = np.arange(1, rows + 1)[:, None], np.arange(columns)
        waves = np.sin(i * (2 * math.pi * j / columns + 2 * math.pi / rows))
        np.testing.assert_allclose(weight, waves * math.sqrt(2 / (rows + columns) / waves.var(ddof=1)), atol=1e-6)
    fused = f64(based("sinusoidal", ODD, qkv="fused").blocks[0].attn.qkv.weight)
    assert np.linalg.matrix_rank(fused, tol=1e-6) == ODD.width


def test_zero_is_identities_and_scipys_hadamard() -> None:
    m = based("zero", ODD)
    for matrix in qkv(m):
        np.testing.assert_array_equal(matrix, np.eye(60))
    fc1 = f64(m.blocks[0].mlp.fc1.weight)
    np.testing.assert_allclose(fc1, scipy.linalg.hadamard(256)[:240, :60] * 2**-4, rtol=1e-6)
    np.testing.assert_array_equal(f64(m.head.weight), np.eye(10, 60))
    assert not m.blocks[0].mlp.fc2.weight.any()
    assert not m.blocks[1].attn.proj.weight.any()


def test_idinit_by_loops() -> None:
    m = based("idinit", ODD, tau=0.5, eps=1e-3, loose=0.0)

    def repeated(rows: int, columns: int) -> np.ndarray:
        short = min(rows, columns)
        return np.array([[float(i % short == j % short) for j in range(columns)] for i in range(rows)])

    for matrix in [*qkv(m), f64(m.blocks[0].mlp.fc1.weight), f64(m.head.weight)]:
        np.testing.assert_array_equal(matrix, 0.5 * repeated(*matrix.shape))
    proj = 1e-3 * np.eye(60)
    for row in range(60):
        proj[row, (row + 1) % 60] -= 1e-3
    np.testing.assert_allclose(f64(m.blocks[0].attn.proj.weight), proj, atol=1e-9)
    fc2 = -1e-3 * repeated(60, 240)
    fc2[:, :60] *= -1
    np.testing.assert_allclose(f64(m.blocks[0].mlp.fc2.weight), fc2, atol=1e-9)
    noisy = f64(based("idinit", ODD, loose=0.1).blocks[0].attn.qkv.weight) - np.tile(np.eye(60), (3, 1))
    assert_normal(noisy, 0.1)
