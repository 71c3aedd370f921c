"""`placebo`: what it keeps of a method, what goes, and that nothing else differs; against numpy in float64."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from placebo_helpers import made, placebo
from small_models import (
    VIT,
    VIT_TOKEN,
    f64,
    images,
    qkv_rows,
    softmax,
)

from vitinit.initializers.methods.placebo import IMAGES, orthogonal

IMPULSE = {"name": "impulse", "kernel_size": 3, "solver": "rotation", "weight_norm": 4.0}
BOTH = {**IMPULSE, "value_proj": "mimetic"}
METHODS = [{"name": "mimetic"}, BOTH]


def weights(m: Any, layer: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """W_q, W_k, W_v (heads x d x D) and W_proj (heads x D x d) of a ViT."""
    query, key, value = qkv_rows(m, layer)
    proj = f64(m.blocks[layer].attn.proj.weight)
    return query, key, value, np.stack(np.split(proj, len(query), axis=1))


def singular(matrices: np.ndarray) -> np.ndarray:
    return np.linalg.svd(matrices, compute_uv=False)


def same_spectrum(a: np.ndarray, b: np.ndarray) -> bool:
    """Singular values equal to 1e-5 of the largest, and not zero."""
    first, second = singular(a), singular(b)
    return bool(first.max() > 0.1 and np.abs(first - second).max() <= 1e-5 * first.max())


# --- spectrum ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("of", METHODS, ids=["mimetic", "impulse"])
def test_spectra_stay_the_weights_go_and_the_record_holds_the_start_of_both(of: Any) -> None:
    (m, alone), (placebo_m, without), layer = made(of), made(placebo(of)), 1
    method, rotated = weights(m, layer), weights(placebo_m, layer)
    for a, b in zip(method, rotated, strict=True):
        for one, other in zip(a, b, strict=True):
            assert same_spectrum(one, other)
            assert abs((one * other).sum()) < 0.35 * (one**2).sum(), "another matrix"
    for (q, k, v, p), (rq, rk, rv, rp) in zip(zip(*method, strict=True), zip(*rotated, strict=True), strict=True):
        assert same_spectrum(q.T @ k, rq.T @ rk)
        assert same_spectrum(p @ v, rp @ rv), "of the value path of a head"
    paths = [f64(each.blocks[layer].attn.proj.weight) for each in (m, placebo_m)]
    values = [np.concatenate(each[2]) for each in (method, rotated)]
    assert same_spectrum(paths[0] @ values[0], paths[1] @ values[1]), "of the value path of the layer"

    assert without.placebo.method == alone.start
    assert (without.placebo.of["name"], without.placebo.keep) == (of["name"], "spectrum")
    assert set(without.placebo.treated) == {f"blocks.{i}.attn: W_{w}" for i in (0, 1) for w in ("q", "k", "v", "proj")}
    assert without.placebo.weights == [], "these are all of attention, so `method` and `start` have them"
    for old, new in zip(alone.start, without.start, strict=True):
        for one, other in ((old.query_key, new.query_key), (old.value_path, new.value_path)):
            assert other.norm == pytest.approx(one.norm, rel=1e-5)
            assert other.rank == one.rank


def test_a_random_orthogonal_matrix_is_orthogonal_and_uniform() -> None:
    """Haar: E[Q_ij] = 0 and E[Q_ij^2] = 1/n for every entry; without the sign rule the diagonal would be negative."""
    g = torch.Generator().manual_seed(0)
    drawn = np.stack([orthogonal(3, g).numpy() for _ in range(4000)])
    assert np.abs(drawn @ drawn.transpose(0, 2, 1) - np.eye(3)).max() < 1e-12
    assert np.abs(drawn.mean(0)).max() < 5 * math.sqrt(1 / 3 / 4000)
    assert np.abs((drawn**2).mean(0) - 1 / 3).max() < 5 * math.sqrt(0.2 / 4000)


# --- norm and entropy ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("of", METHODS, ids=["mimetic", "impulse"])
def test_norms_stay_per_head_and_matrix_and_entries_are_gaussian(of: Any) -> None:
    method, gaussian = weights(made(of)[0]), weights(made(placebo(of, "norm"))[0])
    for a, b in zip(method, gaussian, strict=True):
        norms = [np.sqrt((w**2).sum((1, 2))) for w in (a, b)]
        np.testing.assert_allclose(norms[1], norms[0], rtol=1e-5)
        entries = (b / norms[1][:, None, None]).ravel() * math.sqrt(b[0].size)
        assert abs((entries**4).mean() - 3) < 5 * math.sqrt(96 / entries.size), "kurtosis of a normal"


def test_entries_stay_per_head_and_matrix_in_another_order() -> None:
    method, shuffled = (made(one)[0] for one in ("mimetic", placebo("mimetic", "entries")))
    for before, after in zip(weights(method), weights(shuffled), strict=True):
        for a, b in zip(before, after, strict=True):
            assert np.array_equal(np.sort(a, None), np.sort(b, None))
            assert np.abs(np.corrcoef(a.ravel(), b.ravel())[0, 1]) < 0.2


@torch.no_grad()
def plain_entropies(m: Any, images_BCHW: torch.Tensor) -> list[float]:
    """Mean attention entropy of every layer between patch tokens: softmax written out in float64."""
    found, tokens, x_BND = [], math.prod(m.patch_embed.grid_size), m._pos_embed(m.patch_embed(images_BCHW))
    for block in m.blocks:
        given, attn = f64(block.norm1(x_BND)), block.attn
        projected = given @ f64(attn.qkv.weight).T + f64(attn.qkv.bias)
        query, key, _ = projected.reshape(*given.shape[:2], 3, attn.num_heads, -1).transpose(2, 0, 3, 1, 4)
        p = softmax((query @ key.transpose(0, 1, 3, 2) / math.sqrt(query.shape[-1]))[..., -tokens:, -tokens:])
        found.append(float(-(p * np.log(np.maximum(p, 1e-300))).sum(-1).mean()))
        x_BND = block(x_BND)
    return found


def assert_matched(wanted: list[float], found: list[float], unmatched: list[float]) -> None:
    assert found == pytest.approx(wanted, rel=2e-3), "1 % is asked for"
    assert all(abs(a - b) > 0.02 * b for a, b in zip(unmatched, wanted, strict=True)), "or there was nothing to match"


@pytest.mark.parametrize(("spec", "of"), [(VIT, METHODS[0]), (VIT_TOKEN, METHODS[1])], ids=["mimetic", "impulse"])
def test_entropy_is_that_of_the_method_in_every_layer(spec: Any, of: Any) -> None:
    method, only_norm = (made(each, spec)[0] for each in (of, placebo(of, "norm")))
    matched, report = made(placebo(of, "entropy"), spec)
    wanted, found, unmatched = (plain_entropies(m, images(IMAGES)) for m in (method, matched, only_norm))
    assert_matched(wanted, found, unmatched)
    assert [entry.layer for entry in report.placebo.matched] == [f"blocks.{i}.attn" for i in range(2)]
    assert [entry.method for entry in report.placebo.matched] == pytest.approx(wanted, rel=1e-4)
    assert [entry.placebo for entry in report.placebo.matched] == pytest.approx(found, rel=1e-4)
    for layer, entry in enumerate(report.placebo.matched):
        ours, norm_alone = weights(matched, layer), weights(only_norm, layer)
        for part in (0, 1):  # as `norm`, times the scale; of W_v and W_proj the very same
            np.testing.assert_allclose(ours[part], entry.scale * norm_alone[part], rtol=1e-5)
        for part in (2, 3):
            np.testing.assert_array_equal(ours[part], norm_alone[part])
