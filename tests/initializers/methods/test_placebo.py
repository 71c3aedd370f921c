"""`placebo`: what it keeps of a method, what goes, and that nothing else differs; against numpy in float64."""

import math

import numpy as np
import pytest
from small_models import VIT, VIT_TOKEN, f64, images, model, qkv_rows, streams

from vitinit.initializers import registry
from vitinit.initializers.apply import initialize_run
from vitinit.initializers.diagnostics import measured
from vitinit.initializers.registry import Job

MIMETIC = {"name": "mimetic"}
IMPULSE = {"name": "impulse", "weight_norm": 4.0, "value_proj": "mimetic"}
METHODS = pytest.mark.parametrize("of", [MIMETIC, IMPULSE], ids=["mimetic", "impulse"])


def made(named, keep="", spec=VIT):
    """A model after a method, or its placebo."""
    m, base = model(spec), registry.build("kaiming_uniform", {})
    method = registry.build_named({"name": "placebo", "of": named, "keep": keep} if keep else named)
    initialize_run(m, base, method, streams(0), job=Job(training_images=images))
    return m


def weights(m, layer=1):
    """W_q, W_k, W_v (heads x d x D) and W_proj (heads x D x d) of a ViT."""
    query, key, value = qkv_rows(m, layer)
    return query, key, value, np.stack(np.split(f64(m.blocks[layer].attn.proj.weight), len(query), axis=1))


def assert_same_spectrum(a, b):
    """Singular values are equal to 1e-5 of the largest, and not zero."""
    first, second = (np.linalg.svd(matrix, compute_uv=False) for matrix in (a, b))
    assert first.max() > 0.1
    np.testing.assert_allclose(second, first, atol=1e-5 * first.max())


@METHODS
def test_spectra_stay_and_the_weights_go(of):
    m, placebo_m = made(of), made(of, "spectrum")
    method, rotated = weights(m), weights(placebo_m)
    for a, b in zip(method, rotated, strict=True):
        assert_same_spectrum(a, b)
        assert (np.abs((a * b).sum((1, 2))) < 0.35 * (a**2).sum((1, 2))).all(), "another matrix"
    (q, k, v, p), (rq, rk, rv, rp) = method, rotated
    assert_same_spectrum(np.swapaxes(q, 1, 2) @ k, np.swapaxes(rq, 1, 2) @ rk)
    assert_same_spectrum(p @ v, rp @ rv)
    assert_same_spectrum((p @ v).sum(0), (rp @ rv).sum(0))  # the value path of the layer


@METHODS
def test_norms_stay_per_head_and_matrix_and_entries_are_gaussian(of):
    for a, b in zip(weights(made(of)), weights(made(of, "norm")), strict=True):
        norms = [np.linalg.norm(w, axis=(1, 2)) for w in (a, b)]
        np.testing.assert_allclose(norms[1], norms[0], rtol=1e-5)
        entries = (b / norms[1][:, None, None]).ravel() * math.sqrt(b[0].size)
        assert abs((entries**4).mean() - 3) < 5 * math.sqrt(96 / entries.size), "kurtosis of a normal"


def test_entries_stay_per_head_and_matrix_in_another_order():
    method, shuffled = (weights(made(MIMETIC, keep)) for keep in ("", "entries"))
    for before, after in zip(method, shuffled, strict=True):
        for a, b in zip(before, after, strict=True):
            assert np.array_equal(np.sort(a, None), np.sort(b, None))
            assert np.abs(np.corrcoef(a.ravel(), b.ravel())[0, 1]) < 0.2


@pytest.mark.parametrize(("spec", "of"), [(VIT, MIMETIC), (VIT_TOKEN, IMPULSE)], ids=["mimetic", "impulse"])
def test_entropy_is_that_of_the_method_in_every_layer(spec, of):
    def entropies(m):
        return [float(entropy_H.mean()) for entropy_H in measured(m, images(64)).entropy]

    method, only_norm, m = (made(of, keep, spec) for keep in ("", "norm", "entropy"))
    wanted, reached = entropies(method), entropies(m)
    assert reached == pytest.approx(wanted, rel=2e-3), "1 % is asked for"
    assert all(abs(a - b) > 0.02 * b for a, b in zip(entropies(only_norm), wanted, strict=True)), "or it was equal"
    for layer in (0, 1):
        for part, (ours, norm_alone) in enumerate(zip(weights(m, layer), weights(only_norm, layer), strict=True)):
            scale = np.linalg.norm(ours) / np.linalg.norm(norm_alone)
            assert part < 2 or scale == pytest.approx(1), "as `norm`, W_q and W_k times one number"
            np.testing.assert_allclose(ours, norm_alone * scale, rtol=1e-5)
