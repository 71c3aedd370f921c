"""The one view on attention: it must be what the modules of timm compute, and writing through it must reach them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import zoo
from small_models import (
    CONVIT,
    CONVMIXER,
    VIT,
    VIT_TOKEN,
    applied,
    f64,
    generator,
    images,
    layer_norm,
    model,
    refused,
    softmax,
)
from timm.layers import Attention
from timm.models.convit import GPSA, MHSA
from torch import nn

from vitinit.initializers.attention import AttentionLayer, attention_layers, evaluated, position_embedding, token_grid
from vitinit.initializers.diagnostics import attention_input
from vitinit.initializers.errors import VitinitError

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
    layer = AttentionLayer("attn", module)
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


@pytest.mark.parametrize("batch_first", [True, False])
def test_attention_of_pytorchs_own_module_is_among_tokens_whatever_comes_first(batch_first: bool) -> None:
    module = nn.MultiheadAttention(WIDTH, HEADS, batch_first=batch_first)
    x_BND = torch.randn(3, TOKENS, WIDTH, generator=generator())
    given = x_BND if batch_first else x_BND.transpose(0, 1)
    layer = AttentionLayer("attn", module)
    _, expected = module(given, given, given, average_attn_weights=False)
    torch.testing.assert_close(layer.attention(*layer.given((given, given, given), {})), expected)


def test_gated_map_follows_equations_6_and_7_on_any_grid() -> None:
    module = attention_module("gpsa")
    layer = AttentionLayer("attn", module)
    assert layer.gated
    gate = 1 / (1 + np.exp(-f64(module.gating_param)))
    for side in (4, 3):  # a second size: the relative positions must follow
        x_BND = torch.randn(1, side * side, WIDTH, generator=generator())
        got = f64(layer.attention(x_BND))[0]
        places = [(r, c) for r in range(side) for c in range(side)]
        features = np.array([[[kc - c, kr - r, (kc - c) ** 2 + (kr - r) ** 2] for kr, kc in places] for r, c in places])
        d = WIDTH // HEADS
        for h in range(HEADS):
            query, key = (
                f64(x_BND)[0] @ f64(w)[h].T + f64(module.qk.bias)[p * WIDTH + h * d : p * WIDTH + (h + 1) * d]
                for p, w in enumerate((layer.query_HdD, layer.key_HdD))
            )
            position = softmax(features @ f64(module.pos_proj.weight)[h] + f64(module.pos_proj.bias)[h])
            expected = (1 - gate[h]) * softmax(query @ key.T / np.sqrt(d)) + gate[h] * position
            np.testing.assert_allclose(got[h], expected / expected.sum(-1, keepdims=True), atol=1e-5)


@pytest.mark.parametrize("spec", [VIT_TOKEN, CONVIT], ids=["vit_token", "convit"])
def test_writing_through_a_view_changes_the_model(spec: Any) -> None:
    m = applied(model(spec), "kaiming_uniform")
    if m.cls_token is not None:  # zero in this base; a zero token without bias asks for nothing
        nn.init.normal_(m.cls_token, generator=generator(1))
    for layer in attention_layers(m):
        for view in ("query_HdD", "key_HdD", "value_DD", "proj_DD"):
            with torch.no_grad():
                before = m(images())
                getattr(layer, view).mul_(1.5)
                after = m(images())
            assert (before - after).abs().max() > 1e-6, (layer.name, view)


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
    with pytest.raises(VitinitError, match="Linear has no attention layer .*: without attention only a base fits"):
        attention_layers(nn.Linear(2, 2))


@pytest.mark.parametrize("spec", [VIT, VIT_TOKEN], ids=["vit", "vit_token"])
def test_position_embedding_is_a_view_without_the_class_row(spec: Any) -> None:
    m = model(spec)
    with torch.no_grad():
        m.pos_embed.normal_(generator=generator())
    rows = 64
    assert m.pos_embed.shape[1] == (65 if spec is VIT_TOKEN else 64)
    embedding = position_embedding(m)
    np.testing.assert_array_equal(f64(embedding), f64(m.pos_embed)[0, -rows:])
    embedding.zero_()
    assert not m.pos_embed[0, -rows:].any()
    assert spec is not VIT_TOKEN or m.pos_embed[0, 0].any()


def test_token_grid_is_rows_and_columns() -> None:
    assert token_grid(model(VIT)) == (8, 8)
    assert token_grid(model(CONVIT, patch_size=8)) == (4, 4)


def patches_by_hand(m: Any, images_BCHW: torch.Tensor) -> np.ndarray:
    """The patch embedding by loops over the patches: B x N x D, row-major."""
    size = m.patch_embed.proj.kernel_size[0]
    weight, bias = f64(m.patch_embed.proj.weight), f64(m.patch_embed.proj.bias)
    pixels = f64(images_BCHW)
    side = pixels.shape[-1] // size
    tokens = np.zeros((len(pixels), side * side, len(weight)))
    for r in range(side):
        for c in range(side):
            patch = pixels[:, :, r * size : (r + 1) * size, c * size : (c + 1) * size]
            tokens[:, r * side + c] = patch.reshape(len(pixels), -1) @ weight.reshape(len(weight), -1).T + bias
    return tokens


@pytest.mark.parametrize("spec", [VIT_TOKEN, CONVIT], ids=["vit_token", "convit"])
def test_attention_input_is_norm1_of_patches_plus_positions(spec: Any) -> None:
    m = applied(model(spec), "kaiming_uniform")
    with torch.no_grad():
        m.blocks[0].norm1.weight.normal_(generator=generator(1))
        m.blocks[0].norm1.bias.normal_(generator=generator(2))
    tokens = patches_by_hand(m, images()) + f64(m.pos_embed)[0, -64:]
    expected = layer_norm(tokens, eps=1e-6) * f64(m.blocks[0].norm1.weight) + f64(m.blocks[0].norm1.bias)
    got = attention_input(m, images())
    assert not got.requires_grad
    np.testing.assert_allclose(f64(got), expected, atol=1e-5)


def test_attention_input_restores_the_mode_and_leaves_no_hook_also_after_a_failure() -> None:
    for training in (True, False):
        m = applied(model(VIT, drop_path_rate=0.5, drop_rate=0.5), "kaiming_uniform").train(training)
        assert torch.equal(attention_input(m, images()), attention_input(m, images())), "without dropout"
        with pytest.raises(Exception):  # noqa: B017, PT011 - whatever timm raises on a wrong size
            attention_input(m, images(size=20))
        assert all(module.training is training for module in m.modules())
        assert not any(module._forward_pre_hooks for module in m.modules())


def test_a_forward_pass_that_measures_leaves_buffers_as_they_were() -> None:
    """ConViT replaces the offsets of its tokens by those of another number of them."""
    m = zoo.build("timm ConViT")
    gpsa = m.blocks[0].attn
    kept, value = gpsa.rel_indices, gpsa.rel_indices.clone()
    with evaluated(m):
        m(images())
        assert gpsa.rel_indices is not kept
    assert gpsa.rel_indices is kept
    m.spare = nn.Linear(3, 3)
    refused(m, "spare is not called", "lsuv", images=images())
    assert gpsa.rel_indices is kept
    assert torch.equal(gpsa.rel_indices, value)


def test_what_was_evaluated_within_a_training_model_still_is() -> None:
    """A BatchNorm that is not to follow the batches, say."""
    m = model(CONVMIXER).train()
    norms = [module for module in m.modules() if isinstance(module, nn.BatchNorm2d)]
    for norm in norms:
        norm.eval()
    with evaluated(m):
        assert not any(module.training for module in m.modules())
    assert norms
    assert [module for module in m.modules() if not module.training] == norms
