"""The start of a run in its record: spectra against numpy on whole products, attention against plain loops."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from small_models import CONVIT, VIT_TOKEN, applied, f64, images, model
from torch import Tensor

from vitinit.initializers.diagnostics import each_attention, starts
from vitinit.initializers.errors import VitinitError


def based(spec: Any) -> Any:
    return applied(model(spec), "kaiming_uniform")


def test_spectra_are_those_of_the_products() -> None:
    m, eps = based(CONVIT), 48 * np.finfo(np.float32).eps  # gated layers and a plain one
    for layer, found in zip(m.blocks, starts(m, None), strict=True):
        attn, heads = layer.attn, CONVIT.heads
        parts = [attn.qk, attn.v] if hasattr(attn, "qk") else [attn.qkv]
        stacked = np.concatenate([f64(part.weight) for part in parts])
        query, key, value = stacked.reshape(3, heads, -1, 48)
        proj = f64(attn.proj.weight).reshape(48, heads, -1).transpose(1, 0, 2)
        for entry, products in ((found.query_key, query.transpose(0, 2, 1) @ key), (found.value_path, proj @ value)):
            values = np.linalg.svd(products, compute_uv=False)
            assert entry.rank == [int((v > eps * v[0]).sum()) for v in values] == [12] * heads
            assert entry.norm == pytest.approx(np.linalg.norm(products, axis=(1, 2)), rel=1e-5)
            assert entry.condition == pytest.approx(values[:, 0] / values[:, 11], rel=1e-5)
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


def test_attention_that_the_model_never_calls_is_named() -> None:
    m = based(VIT_TOKEN)
    m.blocks[1].forward = lambda x: x
    with pytest.raises(VitinitError, match=r"attention 'blocks.1.attn' is not called in a forward pass of"):
        starts(m, images(3))
