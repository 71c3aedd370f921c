"""Families whose models are timm's as they are: parameters by hand and timm's own factories, and what is set apart."""

from __future__ import annotations

from typing import Any

import pytest
import timm
import torch
from timm.models.cait import Cait
from torch import nn

from vitinit.benchmark.grids.resolve import resolve_model
from vitinit.benchmark.models.build import build_model
from vitinit.benchmark.models.family import ModelSpec
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


def test_parameters_are_those_of_timms_factory(undrawn) -> None:
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


def test_the_ratios_and_layer_scale_of_mlp_mixers_reach_the_model() -> None:
    mixer, resmlp = small("mixer_micro", token_ratio=0.25, mlp_ratio=3.0), small("resmlp_micro", mlp_ratio=2.0)
    assert [mixer.blocks[0].mlp_tokens.fc1.out_features, mixer.blocks[0].mlp_channels.fc1.out_features] == [12, 144]
    assert resmlp.blocks[0].mlp_channels.fc1.out_features == 96
    scaled: Any = build_model(preset("resmlp_micro", 16, 4, layer_scale=0.25), 10)
    registry.build("kaiming_uniform", {}).apply(scaled, torch.Generator().manual_seed(0), lambda done, total: None)
    assert {value for block in scaled.blocks for value in (*block.ls1.tolist(), *block.ls2.tolist())} == {0.25}


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
