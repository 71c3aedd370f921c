"""Mimetic initialisation against paper-facts 3, with the noise drawn again and everything else in numpy float64."""

import numpy as np
import pytest
import torch
from small_models import VIT, applied, f64, generator, model, qkv_rows


def noise(kind, width, g):
    """Z: N(0, 1/D), or uniform with that variance."""
    z, limit = torch.empty(width, width), (3 / width) ** 0.5
    return f64(z.normal_(0, width**-0.5, generator=g) if kind == "normal" else z.uniform_(-limit, limit, generator=g))


@pytest.mark.parametrize(
    ("changes", "kind", "strengths"),
    [
        ({}, "uniform", (0.5, 0.9, 0.2, 0.8)),
        ({"width": 160, "heads": 10, "depth": 1}, "normal", (0.7, 0.7, 0.4, 0.4)),  # factorised in another way
    ],
)
def test_products_are_the_papers_for_the_noise_that_was_drawn_and_factors_share_the_singular_values(
    changes, kind, strengths
):
    a_qk, b_qk, a_v, b_v = strengths
    asked = {"alpha_qk": a_qk, "beta_qk": b_qk, "alpha_vproj": a_v, "beta_vproj": b_v, "noise": kind}
    m, released = (
        applied(model(VIT, **changes), "mimetic", 7, **asked, vproj_order=order) for order in ("product", "released")
    )
    g, width, d = generator(7), m.embed_dim, m.embed_dim // m.blocks[0].attn.num_heads
    for layer, block in enumerate(m.blocks):
        query, key, value = qkv_rows(m, layer)
        for q, k in zip(query, key, strict=True):
            u, s, vt = np.linalg.svd(a_qk * noise(kind, width, g) + b_qk * np.eye(width))
            np.testing.assert_allclose(q.T @ k, (u[:, :d] * s[:d]) @ vt[:d], atol=2e-5)
            for factor in (q, k):
                np.testing.assert_allclose(factor @ factor.T, np.diag(s[:d]), atol=1e-4)
        value, proj = value.reshape(width, width), f64(block.attn.proj.weight)
        np.testing.assert_allclose(value.T @ proj.T, a_v * noise(kind, width, g) - b_v * np.eye(width), atol=2e-5)
        np.testing.assert_allclose(value @ value.T, proj.T @ proj, atol=5e-5)
        # the code released with arXiv 2404.01139 has the two factors the other way round
        np.testing.assert_array_equal(qkv_rows(released, layer)[2].reshape(width, width), value.T)
        np.testing.assert_array_equal(f64(released.blocks[layer].attn.proj.weight), proj.T)
