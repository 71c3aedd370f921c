"""The two bases: empirical moments and bounds of every parameter group against paper-facts 1.6, and against timm."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from small_models import CLASSES, CONVIT, TINY, VIT, f64, generator, model, silent
from timm.models.vision_transformer import VisionTransformer
from torch import nn

from initializers import registry
from initializers.errors import VitinitError

WIDE = TINY.model_copy(update={"patch_size": 4})
WIDE_TOKEN = WIDE.model_copy(update={"position": "learned", "pool": "token"})
SIGMAS = 5.0
"""Allowed sampling errors; the seeds are fixed, so a test that passes once passes always."""


def based(base: str, spec: Any, seed: int = 1, **params: Any) -> Any:
    m = model(spec)
    with torch.no_grad():
        for parameter in m.parameters():
            parameter.fill_(float("nan"))
    registry.build(base, params, "base").apply(m, generator(seed), silent)
    return m


def assert_uniform(values: np.ndarray, bound: float) -> None:
    n, std = values.size, bound / math.sqrt(3)
    assert np.abs(values).max() <= bound * (1 + 1e-6)
    assert np.abs(values).max() >= bound * (1 - 12 / n), "12/n: missed with probability e^-12"
    assert abs(values.mean()) <= SIGMAS * std / math.sqrt(n)
    # kurtosis 1.8, so the sample std errs by std * sqrt(0.8 / 4n)
    assert abs(values.std() - std) <= SIGMAS * std * math.sqrt(0.2 / n)


def assert_normal(values: np.ndarray, std: float) -> None:
    n = values.size
    assert abs(values.mean()) <= SIGMAS * std / math.sqrt(n)
    assert abs(values.std() - std) <= SIGMAS * std / math.sqrt(2 * n)
    within = (np.abs(values) < std).mean()
    assert abs(within - 0.6827) <= SIGMAS * math.sqrt(0.6827 * 0.3173 / n)
    if n > 10_000:
        assert np.abs(values).max() > 3.5 * std, "cut at +-2 absolute, which is no cut at std 0.02"


def linears(m: nn.Module) -> dict[str, nn.Linear]:
    return {name: module for name, module in m.named_modules() if isinstance(module, nn.Linear)}


def norm_parameters(m: nn.Module) -> list[tuple[np.ndarray, np.ndarray]]:
    found = [(f64(x.weight), f64(x.bias)) for x in m.modules() if isinstance(x, nn.LayerNorm)]
    assert found
    return found


@pytest.mark.parametrize("spec", [WIDE_TOKEN, CONVIT], ids=["vit_token", "convit"])
def test_kaiming_uniform_linear_is_uniform_in_weight_and_bias(spec: Any) -> None:
    m = based("kaiming_uniform", spec)
    assert len(linears(m)) == 4 * spec.depth + 1 + spec.gated_layers * 2
    for linear in linears(m).values():
        fan_in = linear.weight.shape[1]
        assert_uniform(f64(linear.weight), 1 / math.sqrt(fan_in))
        if linear.bias is not None:
            assert_uniform(f64(linear.bias), 1 / math.sqrt(fan_in))


@pytest.mark.parametrize("spec", [WIDE_TOKEN, CONVIT], ids=["vit_token", "convit"])
def test_trunc_normal_linear_has_std_002_and_no_bias(spec: Any) -> None:
    for linear in linears(based("trunc_normal", spec)).values():
        assert_normal(f64(linear.weight), 0.02)
        if linear.bias is not None:
            assert not linear.bias.any()


def test_trunc_normal_std_is_a_parameter_and_cuts_at_two() -> None:
    assert_normal(f64(based("trunc_normal", WIDE, std=0.1).blocks[0].attn.qkv.weight), 0.1)
    wide = f64(based("trunc_normal", VIT, std=2.0).blocks[0].mlp.fc1.weight)
    assert np.abs(wide).max() <= 2
    # N(0, 1) cut at +-1 has variance 1 - 2 phi(1) / (Phi(1) - Phi(-1)) = 0.2911
    assert abs(wide.std() - 2 * math.sqrt(0.29112)) < 0.02


@pytest.mark.parametrize("spec", [WIDE_TOKEN, CONVIT], ids=["vit_token", "convit"])
def test_trunc_normal_at_kaimings_scale_has_its_variance_in_every_layer(spec: Any) -> None:
    """Kaiming uniform: U(+-1/sqrt(fan_in)), whose variance is (2/sqrt(fan_in))^2 / 12; the MLP has two fan_ins."""
    found, like = based("trunc_normal", spec, std="kaiming"), based("kaiming_uniform", spec)
    for name, linear in linears(found).items():
        assert_normal(f64(linear.weight), math.sqrt((2 / math.sqrt(linear.in_features)) ** 2 / 12))
        n = linear.weight.numel()
        ratio = f64(linear.weight).std() / f64(linears(like)[name].weight).std()
        assert abs(ratio - 1) <= SIGMAS * math.sqrt(2 / (2 * n)), "as measured on the other base"
        if linear.bias is not None:
            assert not linear.bias.any()
    if spec.position == "learned":
        assert_normal(f64(found.pos_embed), 0.02)


def test_trunc_normal_takes_no_other_name_for_its_std() -> None:
    with pytest.raises(VitinitError, match="kaiming") as caught:
        registry.build("trunc_normal", {"std": "xavier"})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("base", "spec"), [("kaiming_uniform", WIDE), ("trunc_normal", CONVIT)])
def test_patch_embedding_is_the_pytorch_default_of_a_convolution(base: str, spec: Any) -> None:
    conv = based(base, spec).patch_embed.proj
    bound = 1 / math.sqrt(3 * spec.patch_size**2)
    assert_uniform(f64(conv.weight), bound)
    assert_uniform(f64(conv.bias), bound)


@pytest.mark.parametrize("base", ["kaiming_uniform", "trunc_normal"])
def test_norms_and_gates_are_one(base: str) -> None:
    m = based(base, CONVIT)
    for weight, bias in norm_parameters(m):
        assert (weight == 1).all()
        assert (bias == 0).all()
    for block in m.blocks[: CONVIT.gpsa_layers]:
        assert block.attn.gating_param.tolist() == [1.0] * CONVIT.heads


@pytest.mark.parametrize(("base", "spec"), [("kaiming_uniform", WIDE_TOKEN), ("trunc_normal", CONVIT)])
def test_learned_position_embedding_has_std_002(base: str, spec: Any) -> None:
    assert_normal(f64(based(base, spec).pos_embed), 0.02)


@pytest.mark.parametrize("base", ["kaiming_uniform", "trunc_normal"])
def test_sincos_embedding_is_left_alone(base: str) -> None:
    assert torch.equal(based(base, VIT).pos_embed, model(VIT).pos_embed)


def test_class_token_is_zero_or_a_millionth() -> None:
    assert not based("kaiming_uniform", WIDE_TOKEN).cls_token.any()
    token = f64(based("trunc_normal", WIDE_TOKEN).cls_token)
    assert_normal(token, 1e-6)


def timm_vit(weight_init: str) -> VisionTransformer:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        return VisionTransformer(
            img_size=32, patch_size=4, num_classes=CLASSES, embed_dim=192, depth=1, num_heads=3, weight_init=weight_init
        )


@pytest.mark.parametrize(("base", "weight_init"), [("kaiming_uniform", "skip"), ("trunc_normal", "")])
def test_every_parameter_agrees_with_the_one_timm_makes(base: str, weight_init: str) -> None:
    ours = dict(based(base, WIDE_TOKEN).named_parameters())
    theirs = dict(timm_vit(weight_init).named_parameters())
    assert ours.keys() == theirs.keys()
    if weight_init == "skip":  # timm leaves these two unset in that mode; the facts give randn * 0.02 and 0
        del ours["pos_embed"], ours["cls_token"]
    for name, parameter in ours.items():
        a, b = f64(parameter).ravel(), f64(theirs[name]).ravel()
        n, std = a.size, b.std()
        if std == 0:
            assert (a == b).all(), name
        else:  # two samples: both errors, a normal's being the larger
            assert abs(a.std() / std - 1) <= SIGMAS * math.sqrt(2 / (2 * n)), name
            assert abs(a.mean() - b.mean()) <= SIGMAS * std * math.sqrt(2 / n), name
            if n >= 500:
                kurtosis = [((x - x.mean()) ** 4).mean() / x.var() ** 2 for x in (a, b)]
                assert abs(kurtosis[0] - kurtosis[1]) <= SIGMAS * math.sqrt(2 * 24 / n), name


@pytest.mark.parametrize("base", ["kaiming_uniform", "trunc_normal"])
def test_a_parameter_without_a_rule_is_an_error_that_names_it(base: str) -> None:
    m = VisionTransformer(img_size=32, patch_size=8, num_classes=2, embed_dim=24, depth=1, num_heads=2)
    m.blocks[0].temperature = nn.Parameter(torch.ones(1))
    with pytest.raises(VitinitError, match=r"blocks\.0\.temperature") as caught:
        registry.build(base, {}).apply(m, generator(), silent)
    assert base in str(caught.value)
