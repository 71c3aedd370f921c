"""Methods of one step: zero query, zero branch, depth-scaled, mimetic's mean of the MLP, conditioned, DCT."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.fft
import torch
from small_models import ARCHS, CONVIT, VIT, applied, differing, f64, model, qkv_rows, state

WIDE = VIT.model_copy(update={"width": 60, "heads": 5})


def both(spec: Any, name: str, **params: Any) -> tuple[Any, Any]:
    """The model before and after, with biases that are not zero."""
    before, after = (applied(model(spec), "kaiming_uniform", 9) for _ in range(2))
    return before, applied(after, name, **params)


def named(spec: Any, *ends: str) -> set[str]:
    return {f"blocks.{i}.{end}" for i in range(spec.depth) for end in ends}


def test_zero_query_clears_w_q_and_its_bias_alone() -> None:
    before, after = both(VIT, "zero_query")
    for end in ("weight", "bias"):
        old, new = (m.blocks[1].attn.qkv.get_parameter(end) for m in (before, after))
        assert not new[:48].any()
        assert torch.equal(old[48:], new[48:])
    assert differing(state(before), state(after)) == named(VIT, "attn.qkv.weight", "attn.qkv.bias")
    _, gated = both(CONVIT, "zero_query")
    assert not gated.blocks[0].attn.qk.weight[:48].any()
    assert gated.blocks[0].attn.qk.weight[48:].all()


def test_zero_branch_clears_the_last_matrix_of_both_branches_alone() -> None:
    before, after = both(CONVIT, "zero_branch")
    ends = [f"{last}.{end}" for last in ("attn.proj", "mlp.fc2") for end in ("weight", "bias")]
    assert differing(state(before), state(after)) == named(CONVIT, *ends)
    assert not any(after.get_parameter(name).any() for name in named(CONVIT, *ends))


@pytest.mark.parametrize(("arch", "rule"), [("vit", "gpt2"), ("convit", "fix_init"), ("convit", "gpt2")])
def test_last_matrices_are_divided_by_the_stated_root_and_nothing_else_is(arch: str, rule: str) -> None:
    before, after = both(ARCHS[arch], "depth_scaled", rule=rule)
    depth = len(after.blocks)
    for number, (old, new) in enumerate(zip(before.blocks, after.blocks, strict=True)):
        factor = (2 * (number + 1 if rule == "fix_init" else depth)) ** -0.5
        np.testing.assert_allclose(f64(new.attn.proj.weight), factor * f64(old.attn.proj.weight), rtol=1e-6)
        np.testing.assert_allclose(f64(new.mlp.fc2.weight), factor * f64(old.mlp.fc2.weight), rtol=1e-6)
    assert differing(state(before), state(after)) == named(ARCHS[arch], "attn.proj.weight", "mlp.fc2.weight")


def test_scaled_random_draws_attention_and_the_first_mlp_matrix_uniformly_and_clears_the_last() -> None:
    before, after = both(VIT, "scaled_random", scale=0.8)
    limit = 0.8 * np.sqrt(3 / 48)
    for block in after.blocks:
        qkv = f64(block.attn.qkv.weight)
        for drawn in (qkv[:48], qkv[48:96], qkv[96:], f64(block.attn.proj.weight), f64(block.mlp.fc1.weight)):
            assert 0.95 * limit < np.abs(drawn).max() <= limit
            np.testing.assert_allclose(drawn.std(), 0.8 / np.sqrt(48), rtol=0.05)
        assert not block.mlp.fc2.weight.any()
    names = [f"{part}.weight" for part in ("attn.qkv", "attn.proj", "mlp.fc1", "mlp.fc2")]
    assert differing(state(before), state(after)) == named(VIT, *names)


def test_logits_of_independent_tokens_have_the_critical_scale() -> None:
    before, after = both(WIDE, "critical_scale", beta=1.2)
    tokens = np.random.default_rng(0).standard_normal((2000, WIDE.width))
    query, key, _ = qkv_rows(after)
    n = (WIDE.image_size // WIDE.patch_size) ** 2
    logits = [((tokens @ q.T) * (tokens[::-1] @ k.T)).sum(1) / len(q) ** 0.5 for q, k in zip(query, key, strict=True)]
    np.testing.assert_allclose(np.std(logits), 1.2 * np.sqrt(np.log(n)), rtol=0.03)
    assert differing(state(before), state(after)) == named(WIDE, "attn.qkv.weight")


# --- conditioned -----------------------------------------------------------------------------------------------------


def test_rows_of_every_head_are_orthonormal_and_heads_are_independent() -> None:
    query, key, _ = qkv_rows(both(WIDE, "conditioned")[1])
    heads = [*query, *key]
    for head in heads:
        np.testing.assert_allclose(head @ head.T, np.eye(len(head)), atol=1e-6)
    between = [np.abs(a @ b.T).max() for i, a in enumerate(heads) for b in heads[:i]]
    assert min(between) > 0.05, "two heads would be orthogonal only if they were drawn together"
    assert max(between) < 0.9


def test_each_head_reads_the_first_channels() -> None:
    for value_dD in qkv_rows(both(WIDE, "conditioned")[1], 1)[2]:
        np.testing.assert_array_equal(value_dD, np.eye(12, 60))


# --- DCT -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("place", "matrix", "spec"), [(0, "query", VIT), (1, "key", WIDE), (2, "value", WIDE)])
def test_one_matrix_is_scipys_orthonormal_dct_and_the_rest_stays(place: int, matrix: str, spec: Any) -> None:
    before, after = both(spec, "dct", matrix=matrix)
    for part, (old, new) in enumerate(zip(qkv_rows(before), qkv_rows(after), strict=True)):
        expected = scipy.fft.dct(np.eye(spec.width), norm="ortho", axis=0).reshape(old.shape) if part == place else old
        np.testing.assert_allclose(new, expected, atol=1e-6 * (part == place))
    assert differing(state(before), state(after)) == named(spec, "attn.qkv.weight")
    gated = both(CONVIT, "dct", matrix="value")[1].blocks[0].attn.v.weight
    np.testing.assert_allclose(f64(gated), scipy.fft.dct(np.eye(48), norm="ortho", axis=0), atol=1e-6)
