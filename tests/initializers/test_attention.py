"""The one view on attention: it must be what the modules of timm compute, and writing through it must reach them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from small_models import (
    CONVIT,
    VIT,
    VIT_TOKEN,
    applied,
    f64,
    generator,
    images,
    layer_norm,
    model,
)
from timm.layers import Attention
from timm.models.convit import GPSA, MHSA
from torch import nn

from vitinit.initializers.adapters import kind_of
from vitinit.initializers.attention import AttentionLayer, attention_layers
from vitinit.initializers.diagnostics import attention_input

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


def test_views_are_the_documented_rows_of_the_weights_and_layers_come_from_the_input_on() -> None:
    m = model(VIT)
    with torch.no_grad():
        m.blocks[1].attn.qkv.weight.copy_(torch.arange(3 * 48 * 48.0).view(144, 48))
    layer = attention_layers(m)[1]
    assert layer.heads == 4
    assert layer.query_HdD.shape == layer.key_HdD.shape == (4, 12, 48)
    assert layer.value_DD.shape == layer.proj_DD.shape == (48, 48)
    assert layer.query_HdD[1, 2, 3] == (12 + 2) * 48 + 3
    assert layer.key_HdD[2, 0, 5] == (48 + 24) * 48 + 5
    assert layer.value_DD[7, 1] == (96 + 7) * 48 + 1
    assert [layer.name for layer in attention_layers(model(VIT, depth=11))] == [f"blocks.{i}.attn" for i in range(11)]
    assert [layer.gated for layer in attention_layers(model(CONVIT))] == [True, True, False]


@pytest.mark.parametrize("spec", [VIT_TOKEN, CONVIT], ids=["vit_token", "convit"])
def test_attention_input_is_norm1_of_patches_plus_positions(spec: Any) -> None:
    m = applied(model(spec), "kaiming_uniform")
    with torch.no_grad():
        m.blocks[0].norm1.weight.normal_(generator=generator(1))
        m.blocks[0].norm1.bias.normal_(generator=generator(2))
    tokens = f64(m.patch_embed(images())) + f64(m.pos_embed)[0, -64:]
    expected = layer_norm(tokens, eps=1e-6) * f64(m.blocks[0].norm1.weight) + f64(m.blocks[0].norm1.bias)
    got = attention_input(m, images())
    assert not got.requires_grad
    np.testing.assert_allclose(f64(got), expected, atol=1e-5)
