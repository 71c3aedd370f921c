"""Methods of one step against their formulas, tensor by tensor; all other tensors stay as they were."""

import numpy as np
import pytest
import scipy.fft
import torch
from small_models import (
    CONVIT,
    VIT,
    applied,
    assert_normal,
    assert_uniform,
    differing,
    f64,
    generator,
    model,
    qkv_rows,
    state,
)

WIDE = VIT.model_copy(update={"width": 60, "heads": 5})


def both(spec, name, **params):
    """The model before and after, with biases that are not zero."""
    before, after = (applied(model(spec), "kaiming_uniform", 9) for _ in range(2))
    return before, applied(after, name, **params)


def scaled(*ends, by, rows=None):
    """Multiply the first rows of these tensors of each block by a factor of its number."""

    def change(tensors):
        for name, value in tensors.items():
            if name.startswith("blocks.") and name.split(".", 2)[2] in ends:
                value[:rows] *= by(int(name.split(".")[1]))

    return change


LAST = ("attn.proj.weight", "mlp.fc2.weight")
BIASES = ("attn.proj.bias", "mlp.fc2.bias")


@pytest.mark.parametrize(
    ("spec", "name", "params", "change"),
    [
        (VIT, "zero_query", {}, scaled("attn.qkv.weight", "attn.qkv.bias", by=lambda _: 0, rows=48)),
        (CONVIT, "zero_branch", {}, scaled(*LAST, *BIASES, by=lambda _: 0)),
        (CONVIT, "depth_scaled", {}, scaled(*LAST, by=lambda block: (2 * block + 2) ** -0.5)),
        (CONVIT, "depth_scaled", {"rule": "gpt2"}, scaled(*LAST, by=lambda _: 6**-0.5)),
    ],
)
def test_tensors_are_scaled_as_stated_and_nothing_else_is(spec, name, params, change):
    before, after = both(spec, name, **params)
    expected = state(before)
    change(expected)
    torch.testing.assert_close(state(after), expected, rtol=1e-6, atol=0)


def named(spec, *ends):
    return {f"blocks.{i}.{end}.weight" for i in range(spec.depth) for end in ends}


def test_scaled_random_draws_attention_and_the_first_mlp_matrix_uniformly_and_clears_the_last():
    before, after = both(VIT, "scaled_random", scale=0.8)
    for block in after.blocks:
        for drawn in (*block.attn.qkv.weight.chunk(3), block.attn.proj.weight, block.mlp.fc1.weight):
            assert_uniform(f64(drawn), 0.8 * (3 / 48) ** 0.5)
        assert not block.mlp.fc2.weight.any()
    assert differing(state(before), state(after)) == named(VIT, "attn.qkv", "attn.proj", "mlp.fc1", "mlp.fc2")


def test_logits_of_independent_tokens_have_the_critical_scale():
    """s^2 D = beta sqrt(ln N) for entries of variance s^2, and N = 64."""
    before, after = both(WIDE, "critical_scale", beta=1.2)
    for part in qkv_rows(after)[:2]:
        assert_normal(part, (1.2 * np.log(64) ** 0.5 / 60) ** 0.5)
    assert differing(state(before), state(after)) == named(WIDE, "attn.qkv")


def test_conditioned_rows_are_orthonormal_in_independent_heads_that_read_the_first_channels():
    query, key, value = qkv_rows(both(WIDE, "conditioned")[1], 1)
    heads = [*query, *key]
    for head in heads:
        np.testing.assert_allclose(head @ head.T, np.eye(12), atol=1e-6)
    between = [np.abs(a @ b.T).max() for i, a in enumerate(heads) for b in heads[:i]]
    assert min(between) > 0.05, "two heads would be orthogonal only if they were drawn together"
    assert max(between) < 0.9
    np.testing.assert_array_equal(value, [np.eye(12, 60)] * 5)


@pytest.mark.parametrize(("place", "matrix", "spec"), [(0, "query", VIT), (1, "key", WIDE), (2, "value", WIDE)])
def test_one_matrix_is_scipys_orthonormal_dct_and_the_rest_stays(place, matrix, spec):
    before, after = both(spec, "dct", matrix=matrix)
    for part, (old, new) in enumerate(zip(qkv_rows(before), qkv_rows(after), strict=True)):
        expected = scipy.fft.dct(np.eye(spec.width), norm="ortho", axis=0).reshape(old.shape) if part == place else old
        np.testing.assert_allclose(new, expected, atol=1e-6 * (part == place))
    assert differing(state(before), state(after)) == named(spec, "attn.qkv")


# --- mimetic against paper-facts 3, with the noise drawn again and everything else in numpy float64 ---


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
