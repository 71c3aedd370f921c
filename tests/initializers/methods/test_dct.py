"""DCT initialisation against scipy's transform."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.fft
from small_models import CONVIT, VIT, differing, f64, generator, model, qkv_rows, silent, state

from initializers import registry

PLACES = {"query": 0, "key": 1, "value": 2}


@pytest.mark.parametrize(("matrix", "width", "heads"), [("query", 48, 4), ("key", 60, 5), ("value", 60, 5)])
def test_one_matrix_is_scipy_s_orthonormal_dct_of_type_two_and_the_rest_stays(
    matrix: str, width: int, heads: int
) -> None:
    m = model(VIT, width=width, heads=heads)
    registry.build("kaiming_uniform", {}).apply(m, generator(1), silent)
    before, parts = state(m), qkv_rows(m)
    registry.build("dct", {"matrix": matrix}).apply(m, generator(2), silent)
    x = np.random.default_rng(0).normal(size=width)
    for place, (old, new) in enumerate(zip(parts, qkv_rows(m), strict=True)):
        if place == PLACES[matrix]:
            np.testing.assert_allclose(new.reshape(width, width) @ x, scipy.fft.dct(x, norm="ortho"), atol=1e-5)
        else:
            np.testing.assert_array_equal(old, new)
    assert differing(before, state(m)) == {f"blocks.{i}.attn.qkv.weight" for i in range(VIT.depth)}


def test_in_gated_layers_too() -> None:
    m = model(CONVIT)
    registry.build("dct", {"matrix": "value"}).apply(m, generator(), silent)
    np.testing.assert_allclose(
        f64(m.blocks[0].attn.v.weight), scipy.fft.dct(np.eye(48), norm="ortho", axis=0), atol=1e-6
    )
