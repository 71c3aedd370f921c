"""Conditioned initialisation: condition numbers and slots, by numpy in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from small_models import CONVIT, VIT, differing, f64, generator, model, qkv_rows, silent, state

from initializers import registry

WIDE = VIT.model_copy(update={"width": 60, "heads": 5})


def conditioned(spec: Any, seed: int = 0, **params: Any) -> tuple[Any, Any]:
    """The model before and after."""
    before, after = model(spec), model(spec)
    for m in (before, after):
        registry.build("trunc_normal", {}).apply(m, generator(9), silent)
    registry.build("conditioned", params).apply(after, generator(seed), silent)
    return before, after


def test_rows_of_every_head_are_orthonormal_and_heads_are_independent() -> None:
    _, m = conditioned(WIDE)
    query, key, _ = qkv_rows(m)
    heads = [*query, *key]
    for head in heads:
        np.testing.assert_allclose(head @ head.T, np.eye(len(head)), atol=1e-6)
    between = [np.abs(a @ b.T).max() for i, a in enumerate(heads) for b in heads[:i]]
    assert min(between) > 0.05, "two heads would be orthogonal only if they were drawn together"
    assert max(between) < 0.9


@pytest.mark.parametrize(
    ("value", "channels"),
    [("same", lambda head, d: range(d)), ("slices", lambda head, d: range(head * d, head * d + d))],
)
def test_each_head_reads_its_channels(value: str, channels: Any) -> None:
    _, m = conditioned(WIDE, value=value)
    for head, value_dD in enumerate(qkv_rows(m, 1)[2]):
        expected = np.zeros((12, 60))
        for row, channel in enumerate(channels(head, 12)):
            expected[row, channel] = 1
        np.testing.assert_array_equal(value_dD, expected)


def test_nothing_else_is_touched_and_value_can_stay() -> None:
    before, after = conditioned(VIT, value="keep")
    assert differing(state(before), state(after)) == {f"blocks.{i}.attn.qkv.weight" for i in range(VIT.depth)}
    np.testing.assert_array_equal(qkv_rows(before)[2], qkv_rows(after)[2])


@pytest.mark.parametrize("value", ["same", "slices"])
def test_at_the_scale_of_the_base_every_head_has_its_norm(value: str) -> None:
    before, after = conditioned(VIT, value=value, scale="base")
    for old, new in zip(qkv_rows(before), qkv_rows(after), strict=True):
        for one, other in zip(old, new, strict=True):
            assert np.linalg.norm(other) == pytest.approx(np.linalg.norm(one), rel=1e-5)
            assert np.linalg.cond(other) == pytest.approx(1, abs=1e-5)


def test_gpsa_layers_are_set_in_their_own_matrices() -> None:
    _, m = conditioned(CONVIT, value="slices")
    query = f64(m.blocks[0].attn.qk.weight)[:12]
    np.testing.assert_allclose(query @ query.T, np.eye(12), atol=1e-6)
    np.testing.assert_array_equal(f64(m.blocks[0].attn.v.weight), np.eye(48))
