"""Families whose models are timm's as they are: parameters by hand and timm's own factories, and what is set apart."""

from __future__ import annotations

from typing import Any

import pytest
import timm
import torch
from timm.models.cait import Cait
from torch import nn
from torch.nn import functional as F

from vitinit.benchmark.grids.fitting import misfit
from vitinit.benchmark.grids.resolve import resolve_model
from vitinit.benchmark.models.build import build_model, parameter_count
from vitinit.benchmark.models.family import ModelSpec
from vitinit.benchmark.spec import InitializerSpec
from vitinit.initializers import registry
from vitinit.initializers.diagnostics import measured
from vitinit.initializers.errors import VitinitError
from vitinit.initializers.initialize import initialize
from vitinit.runners.basics.streams import stream

IMAGES_BCHW = torch.randn(3, 3, 16, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def preset(name: str, image_size: int = 224, patch_size: int = 16, **fields: Any) -> ModelSpec:
    return resolve_model({"preset": name, "image_size": image_size, "patch_size": patch_size, **fields})


def small(name: str, **fields: Any) -> nn.Module:
    """In float64, every parameter drawn."""
    model = build_model(preset(name, 16, 4, **fields), 10).double().eval()
    with torch.no_grad():
        draws = torch.Generator().manual_seed(1)
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, dtype=torch.float64, generator=draws) / 4)
    return model


def test_parameters_are_those_of_timms_factory() -> None:
    for name, theirs in {
        "deit_tiny": "deit_tiny_distilled_patch16_224",
        "deit_small": "deit_small_distilled_patch16_224",
        "cait_xxs24": "cait_xxs24_224",
        "cait_s24": "cait_s24_224",
        "mixer_small": "mixer_s16_224",
        "mixer_base": "mixer_b16_224",
        "resmlp_12": "resmlp_12_224",
        "resmlp_36": "resmlp_36_224",
        **{name: f"{name}_patch4_window7_224" for name in ("swin_tiny", "swin_small", "swin_base")},
    }.items():
        with torch.device("meta"):
            models = build_model(preset(name, patch_size=4 if "swin" in name else 16), 1000), timm.create_model(theirs)
        shapes = [{key: tuple(value.shape) for key, value in model.state_dict().items()} for model in models]
        assert shapes[0] == shapes[1]
        if "swin" in name:
            windows = (
                [[(b.window_size, b.shift_size, b.attn.num_heads) for b in stage.blocks] for stage in model.layers]
                for model in models
            )
            assert next(windows) == next(windows)


def test_parameters_by_hand() -> None:
    d, h, n, hidden = 48, 4, 16, 192
    block = 2 * 2 * d + 3 * d * d + 3 * d + d * d + d + d * hidden + hidden + hidden * d + d
    outside = 3 * 16 * d + d + 2 * d
    head = 10 * d + 10
    assert parameter_count(small("deit_micro")) == outside + (n + 2) * d + 2 * d + 3 * block + 2 * head
    scaled = block + 2 * d
    talking = 3 * 2 * (h * h + h)
    assert parameter_count(small("cait_micro", class_layers=1)) == outside + d + n * d + head + 4 * scaled + talking
    tokens = 12
    block = 2 * 2 * d + 2 * n * tokens + tokens + n + 2 * d * hidden + hidden + d
    assert parameter_count(small("mixer_micro", token_ratio=0.25)) == outside + head + 3 * block
    block = 2 * 2 * d + n * n + n + 2 * d * (2 * d) + 2 * d + d + 2 * d
    assert parameter_count(small("resmlp_micro", mlp_ratio=2.0)) == outside + head + 3 * block


@pytest.mark.parametrize("training", [False, True])
def test_without_a_teacher_a_deits_logits_are_the_mean_of_both_heads(training: bool) -> None:
    """And so both are trained by the one loss, each with half of its gradient."""
    model: Any = small("deit_micro").train(training)
    tokens_BND = model.forward_features(IMAGES_BCHW)
    logits = [
        token_BD @ head.weight.T + head.bias
        for token_BD, head in zip(tokens_BND[:, :2].unbind(1), (model.head, model.head_dist), strict=True)
    ]
    found = model(IMAGES_BCHW)
    torch.testing.assert_close(found, (logits[0] + logits[1]) / 2)
    found[:, 3].sum().backward()
    for head in (model.head, model.head_dist):
        assert head.bias.grad.tolist() == [0, 0, 0, len(IMAGES_BCHW) / 2, 0, 0, 0, 0, 0, 0]


def test_a_base_draws_the_distillation_token_apart_from_the_class_token() -> None:
    model: Any = build_model(preset("deit_micro", 16, 4, width=192), 10)
    registry.build("trunc_normal", {}).apply(model, torch.Generator().manual_seed(0), lambda done, total: None)
    assert model.dist_token.detach().std().item() == pytest.approx(0.02, rel=0.2)
    assert model.cls_token.abs().max() < 1e-5
    assert model.pos_embed.shape == (1, 18, 192)


def test_cait_is_timms_with_its_layer_scale() -> None:
    """The whole constructor, of which a preset says some, in float64."""
    ours: Any = small("cait_micro", class_layers=3, mlp_ratio=2.0, qkv_bias=False)
    theirs = Cait(16, 4, 3, 10, "token", 48, 3, 4, 2.0, False, depth_token_only=3, mlp_ratio_token_only=2.0).double()
    theirs.load_state_dict(ours.state_dict())
    torch.testing.assert_close(ours(IMAGES_BCHW), theirs.eval()(IMAGES_BCHW))
    fresh: Any = build_model(preset("cait_micro", 16, 4, layer_scale=0.25, drop_path_rate=0.2), 10)
    registry.build("trunc_normal", {}).apply(fresh, torch.Generator().manual_seed(0), lambda done, total: None)
    for block in (*fresh.blocks, *fresh.blocks_token_only):
        assert set(block.gamma_1.tolist()) == set(block.gamma_2.tolist()) == {0.25}
    rates = [getattr(block.drop_path, "drop_prob", 0.0) for block in (*fresh.blocks, *fresh.blocks_token_only)]
    assert rates == [0.2] * 3 + [0.0] * 2


@pytest.mark.parametrize("method", [None, "impulse"])
def test_what_is_measured_of_a_cait_is_its_softmax(method: str | None) -> None:
    """After it heads are mixed once more, by weights of either sign: that gives no shares, and no entropy."""
    model: Any = build_model(preset("cait_micro", 32, 4), 10).eval()
    images_BCHW = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    built = registry.build(method, {}, "method") if method else None
    initialize(model, registry.build("trunc_normal", {}), built, lambda name: stream(0, name))
    mixers = {name: value for name, value in model.named_parameters() if "proj_l" in name or "proj_w" in name}
    assert len(mixers) == 3 * 4
    for value in mixers.values():
        assert value.ndim == 1 or torch.equal(value, torch.eye(4)) == (method is not None)
    with torch.no_grad():
        for value in mixers.values():
            value.copy_(torch.randn(value.shape, generator=torch.Generator().manual_seed(1)))
    seen: list[torch.Tensor] = []
    hooks = [
        block.attn.proj_w.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].permute(0, 3, 1, 2)))
        for block in model.blocks
    ]
    with torch.no_grad():
        model(images_BCHW)
    for hook in hooks:
        hook.remove()
    found = measured(model, images_BCHW)
    torch.testing.assert_close(torch.stack(found.maps), torch.stack([each.mean(0) for each in seen]))
    entropy = torch.stack([-(each * each.log()).sum(-1).mean((0, 2)) for each in seen])
    torch.testing.assert_close(torch.stack(found.entropy), entropy)


def test_mixer_by_hand() -> None:
    """In float64: both MLPs on LayerNormed tokens, beside the tokens themselves."""
    model: Any = small("mixer_micro", depth=2)

    def mlp(x: torch.Tensor, its: Any) -> torch.Tensor:
        return F.gelu(x @ its.fc1.weight.T + its.fc1.bias) @ its.fc2.weight.T + its.fc2.bias

    def norm(x: torch.Tensor, its: Any) -> torch.Tensor:
        return F.layer_norm(x, (48,), its.weight, its.bias, 1e-6)

    x_BND = F.conv2d(IMAGES_BCHW, model.stem.proj.weight, model.stem.proj.bias, stride=4).flatten(2).mT
    for block in model.blocks:
        x_BND = x_BND + mlp(norm(x_BND, block.norm1).mT, block.mlp_tokens).mT
        x_BND = x_BND + mlp(norm(x_BND, block.norm2), block.mlp_channels)
    by_hand = norm(x_BND, model.norm).mean(1) @ model.head.weight.T + model.head.bias
    torch.testing.assert_close(model(IMAGES_BCHW), by_hand)


def test_resmlp_by_hand() -> None:
    """In float64: a matrix between patches, then an MLP, each after an affine map and before LayerScale."""
    model: Any = small("resmlp_micro", depth=2)

    def affine(x: torch.Tensor, its: Any) -> torch.Tensor:
        return x * its.alpha + its.beta

    x_BND = F.conv2d(IMAGES_BCHW, model.stem.proj.weight, model.stem.proj.bias, stride=4).flatten(2).mT
    for block in model.blocks:
        between, mlp = block.linear_tokens, block.mlp_channels
        mixed_BND = torch.einsum("nm,bmd->bnd", between.weight, affine(x_BND, block.norm1)) + between.bias[:, None]
        x_BND = x_BND + block.ls1 * mixed_BND
        inner = F.gelu(affine(x_BND, block.norm2) @ mlp.fc1.weight.T + mlp.fc1.bias)
        x_BND = x_BND + block.ls2 * (inner @ mlp.fc2.weight.T + mlp.fc2.bias)
    by_hand = affine(x_BND, model.norm).mean(1) @ model.head.weight.T + model.head.bias
    torch.testing.assert_close(model(IMAGES_BCHW), by_hand)
    fresh: Any = build_model(preset("resmlp_micro", 16, 4, layer_scale=0.25), 10)
    registry.build("kaiming_uniform", {}).apply(fresh, torch.Generator().manual_seed(0), lambda done, total: None)
    assert {value for block in fresh.blocks for value in (*block.ls1.tolist(), *block.ls2.tolist())} == {0.25}


def test_models_without_attention_say_so() -> None:
    base = InitializerSpec(name="trunc_normal")
    for name, label in (("mixer_micro", "MLP-Mixer"), ("resmlp_micro", "ResMLP")):
        found = misfit(preset(name, 32, 4), base, InitializerSpec(name="mimetic"))
        assert found == f"method 'mimetic': {label} has no attention layer"


def test_what_is_no_model_is_refused() -> None:
    for name, fields, words in (
        ("mixer_micro", {"token_ratio": 0.01}, "token_ratio 0.01 of width 48 leaves the MLP no feature"),
        ("mixer_micro", {"mlp_ratio": 0.01}, "mlp_ratio 0.01 of width 48 leaves the MLP no feature"),
        ("resmlp_micro", {"mlp_ratio": 0.01}, "mlp_ratio 0.01 of width 48 leaves the MLP no feature"),
        ("deit_micro", {"position": "sincos"}, "position"),
        ("deit_micro", {"pool": "avg"}, "pool"),
    ):
        with pytest.raises(VitinitError, match=words):
            preset(name, **fields)
