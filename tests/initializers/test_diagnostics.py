"""The start of a run in its record: spectra against numpy on whole products, attention against plain loops."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from small_models import CONVIT, VIT_TOKEN, applied, f64, images, model
from torch import Tensor

from vitinit.initializers.diagnostics import each_attention, starts


def based(spec: Any) -> Any:
    return applied(model(spec), "kaiming_uniform")


def by_numpy(products: np.ndarray) -> tuple[list[float], list[int], list[float]]:
    values = np.linalg.svd(products, compute_uv=False)
    eps = products.shape[-1] * np.finfo(np.float32).eps
    ranks = [int((v > eps * v[0]).sum()) for v in values]
    return (
        [math.sqrt((p**2).sum()) for p in products],
        ranks,
        [v[0] / v[r - 1] for v, r in zip(values, ranks, strict=True)],
    )


def test_spectra_are_those_of_the_products() -> None:
    spec = CONVIT  # gated layers and a plain one
    m = based(spec)
    for layer, found in zip(m.blocks, starts(m, None), strict=True):
        attn, heads = layer.attn, spec.heads
        if hasattr(attn, "qk"):
            query, key, value = (
                *f64(attn.qk.weight).reshape(2, heads, -1, 48),
                f64(attn.v.weight).reshape(heads, -1, 48),
            )
        else:
            query, key, value = f64(attn.qkv.weight).reshape(3, heads, -1, 48)
        proj = f64(attn.proj.weight).reshape(48, heads, -1).transpose(1, 0, 2)
        for entry, products in ((found.query_key, query.transpose(0, 2, 1) @ key), (found.value_path, proj @ value)):
            norm, rank, condition = by_numpy(products)
            assert entry.rank == rank == [12] * heads
            assert entry.norm == pytest.approx(norm, rel=1e-5)
            assert entry.condition == pytest.approx(condition, rel=1e-5)
        assert found.entropy is found.distance is None, "there were no images"


@pytest.mark.parametrize("spec", [VIT_TOKEN, CONVIT], ids=["vit_token", "convit"])
def test_entropy_and_distance_between_patch_tokens(spec: Any) -> None:
    m = based(spec)
    maps: list[np.ndarray] = []

    def keep(number: int, _: Any, attention_BHNN: Tensor) -> None:
        assert number == len(maps)
        maps.append(f64(attention_BHNN))

    each_attention(m, images(3), keep)
    side = 8
    away = np.array([[math.hypot(i // side - j // side, i % side - j % side) for j in range(64)] for i in range(64)])
    for found, attention in zip(starts(m, images(3)), maps, strict=True):
        among = attention[:, :, -64:, -64:]
        among = among / among.sum(-1, keepdims=True)
        assert found.entropy == pytest.approx((-among * np.log(among)).sum(-1).mean((0, 2)), rel=1e-5)
        assert found.distance == pytest.approx((among * away).sum(-1).mean((0, 2)), rel=1e-5)
