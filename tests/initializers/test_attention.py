"""The one view on attention: it must be what the modules of timm compute, and writing through it must reach them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from small_models import (
    CONVIT,
    VIT,
    f64,
    generator,
    model,
)
from timm.layers import Attention
from timm.models.convit import GPSA, MHSA
from torch import nn

from vitinit.initializers.adapters import kind_of
from vitinit.initializers.attention import AttentionLayer, attention_layers

WIDTH, HEADS, TOKENS = 24, 4, 16


def attention_module(kind: str) -> Any:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        if kind == "gpsa":
            module: Any = GPSA(WIDTH, num_heads=HEADS, qkv_bias=True)
            nn.init.normal_(module.gating_param)
        elif kind == "mhsa":
            module = MHSA(WIDTH, num_heads=HEADS, qkv_bias=True)
        else:
            norm = nn.LayerNorm if kind == "qk_norm" else None
            module = Attention(WIDTH, num_heads=HEADS, qkv_bias=True, qk_norm=norm is not None, norm_layer=norm)
            module.fused_attn = kind != "plain"
            if norm:
                nn.init.normal_(module.q_norm.weight)
        for parameter in module.parameters():
            if parameter.ndim == 2:
                nn.init.normal_(parameter, std=0.3)
    return module.eval()


@pytest.mark.parametrize("kind", ["fused", "plain", "qk_norm", "mhsa", "gpsa"])
def test_attention_map_reproduces_the_forward_pass(kind: str) -> None:
    module = attention_module(kind)
    layer = AttentionLayer("attn", module, kind_of(module))
    x_BND = torch.randn(3, TOKENS, WIDTH, generator=generator())
    attn_BHNN = layer.attention(x_BND)
    assert attn_BHNN.shape == (3, HEADS, TOKENS, TOKENS)
    np.testing.assert_allclose(f64(attn_BHNN).sum(-1), 1, atol=1e-6)

    with torch.no_grad():
        expected = module(x_BND)
        value_bias = module.v.bias if kind == "gpsa" else module.qkv.bias[2 * WIDTH :]
    x, d = f64(x_BND), WIDTH // HEADS
    output = np.zeros_like(x) + f64(module.proj.bias)
    for h in range(HEADS):
        rows = slice(h * d, (h + 1) * d)
        value = x @ f64(layer.value_DD)[rows].T + f64(value_bias)[rows]
        output += f64(attn_BHNN)[:, h] @ value @ f64(layer.proj_DD)[:, rows].T
    np.testing.assert_allclose(output, f64(expected), atol=1e-5)


def test_layers_come_from_the_input_on() -> None:
    assert [layer.name for layer in attention_layers(model(VIT, depth=11))] == [f"blocks.{i}.attn" for i in range(11)]
    assert [layer.gated for layer in attention_layers(model(CONVIT))] == [True, True, False]
