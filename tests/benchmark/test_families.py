"""Families whose models are timm's as they are: parameters by hand and timm's own factories, and what is set apart."""

from __future__ import annotations

from typing import Any

import pytest
import timm
import torch
from pydantic import ValidationError
from torch import nn

from benchmark.grids.resolve import resolve_model
from benchmark.models.build import build_model, parameter_count
from benchmark.models.family import ModelSpec
from initializers import registry

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


@pytest.mark.parametrize(
    ("name", "theirs"),
    [
        ("deit_tiny", "deit_tiny_distilled_patch16_224"),
        ("deit_small", "deit_small_distilled_patch16_224"),
    ],
)
def test_parameters_are_those_of_timms_factory(name: str, theirs: str) -> None:
    with torch.device("meta"):
        models = build_model(preset(name), 1000), timm.create_model(theirs)
    shapes = [{key: tuple(value.shape) for key, value in model.state_dict().items()} for model in models]
    assert shapes[0] == shapes[1]
    assert parameter_count(models[0]) == parameter_count(models[1])


def test_deit_parameters_by_hand() -> None:
    d, n, hidden = 48, 16, 192
    block = 2 * 2 * d + 3 * d * d + 3 * d + d * d + d + d * hidden + hidden + hidden * d + d
    outside = 3 * 16 * d + d + 2 * d + (n + 2) * d + 2 * d
    assert parameter_count(small("deit_micro")) == outside + 3 * block + 2 * (10 * d + 10)


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
    assert float(model.dist_token.std()) == pytest.approx(0.02, rel=0.2)
    assert model.cls_token.abs().max() < 1e-5
    assert model.pos_embed.shape == (1, 18, 192)


def test_a_deit_has_learned_positions_and_tokens_to_end_in() -> None:
    for field, value in (("position", "sincos"), ("pool", "avg")):
        with pytest.raises(ValidationError, match=field):
            preset("deit_micro", **{field: value})
