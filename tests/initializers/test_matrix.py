"""Every base and method on every family: set, as the model's own forward pass shows, or refused with the reason."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch
import zoo
from caught import maps_of, without_images
from small_models import differing, generator, images, refused, state
from torch import Tensor, nn

import vitinit
from vitinit.initializers.attention import attention_layers
from vitinit.initializers.diagnostics import each_attention
from vitinit.initializers.whole_model import places

BASES = [known.name for known in vitinit.catalogue("base")]
METHODS = [known.name for known in vitinit.catalogue("method")]
NO_ATTENTION = "has no attention layer"
NORMALISED = "normalises queries and keys"
BOTH = ("mimetic", "impulse")
REFUSED: dict[str, dict[str, str]] = {
    "timm ViT qk-norm": dict.fromkeys((*BOTH, "conditioned", "dct", "zero_query"), NORMALISED),
    "timm ViT scale norm": {"mimetic": "a norm or a gate between W_v and W_proj"},
    "timm ViT no positions": {"impulse": "no absolute position embedding"},
    "timm EVA rotary": {"impulse": "rotates queries and keys"},
    "nn.TransformerEncoder": {"impulse": "no token grid"},
    **{name: dict.fromkeys(BOTH, NO_ATTENTION) for name in ("timm ConvMixer", "timm MLP-Mixer", "timm ResMLP")},
    **{name: {"impulse": "no absolute position embedding"} for name in ("timm Swin", "timm BEiT")},
}
"""Why, by model and initialiser; what a placebo of `mimetic` is refused for is what `mimetic` is."""
ONLY = {
    "convit_gpsa": ("timm ConViT",),
    "conv_filters": ("timm ConvMixer",),
}
KEPT = r"\.(gamma|gamma_\d|ls\d|lambda1)$"
"""Layer scales, which are the library's."""
TOKENS_ALONE = {
    **dict.fromkeys(("timm BEiT", "timm EVA rotary", "timm Swin"), "tells places apart itself"),
    "nn.TransformerEncoder": "no token grid",
}
"""Why blocks cannot be trained on strings."""
UNSEEN = {"torchvision ViT", "nn.TransformerEncoder", "timm BEiT", "timm BEiT positions", "timm EVA"}
"""Attention whose Linears are not called."""


def reason(name: str, method: str) -> str | None:
    known = REFUSED.get(name, {})
    if method in ONLY:
        return None if name in ONLY[method] else "has none; choose a"
    if method == "lsuv":
        return "without calling a Linear" if name in UNSEEN else "needs training images"
    if method == "whitened_patches":
        return "needs training images"
    if method == "procedural":
        return TOKENS_ALONE.get(name) or (known["mimetic"] if known.get("mimetic") == NO_ATTENTION else None)
    if method == "critical_scale":
        return "has no token grid" if name == "nn.TransformerEncoder" else reason(name, "zero_query")
    if (
        method in ("conditioned", "dct", "zero_query", "zero_branch", "depth_scaled", "scaled_random")
        and method not in known
    ):
        return known["mimetic"] if known.get("mimetic") == NO_ATTENTION else None
    return known.get("mimetic" if method == "placebo" else method)


def fitting(method: str) -> list[str]:
    return [name for name in zoo.ZOO if reason(name, method) is None]


@pytest.mark.parametrize("name", zoo.ZOO)
def test_what_does_not_fit_is_refused_with_its_reason_before_anything_is_changed(name: str) -> None:
    model = zoo.build(name)
    for method in METHODS:
        if why := reason(name, method):
            refused(model, re.escape(why), method, base="trunc_normal")


def assert_every_linear_has_its_place(model: nn.Module) -> None:
    """By the names that the libraries use, none of which the code goes by."""
    found = places(model)
    names = {n for n, part in model.named_modules() if isinstance(part, nn.Linear)}
    assert names <= found.keys()
    for linear in names:
        end = linear.rsplit(".", 1)[-1]
        role = found[linear].role
        if end in ("qkv", "query", "key", "value", "q_proj", "k_proj", "v_proj"):
            assert role == "qkv", linear
        if end == "fc2":
            assert role == "mlp_out", linear
        if end in ("head", "classifier"):
            assert role == "head", linear


@pytest.mark.parametrize("name", zoo.ZOO)
def test_bases_set_every_parameter_whatever_was_there(name: str) -> None:
    """Each base meets three models or more."""
    base, states = BASES[list(zoo.ZOO).index(name) % len(BASES)], []
    for seed, there in ((1, float("nan")), (2, 7.0)):
        model = zoo.build(name, seed)
        own = [each for each, _ in model.named_parameters() if not re.search(KEPT, each)]
        for parameter in own:
            nn.init.constant_(model.get_parameter(parameter), there)
        report = vitinit.initialize(model, base=base, seed=3)
        assert {change.name for change in report.changes} >= set(own)
        states.append(state(model))
    assert differing(*states) == set(), base
    assert_every_linear_has_its_place(model)
    with torch.no_grad():
        assert logits(model, images(2)).isfinite().all()


def logits(model: nn.Module, images_BCHW: Tensor) -> Any:
    out = model(images_BCHW)
    return getattr(out, "logits", out)


@pytest.mark.parametrize("name", fitting("impulse"))
def test_impulses_are_in_the_models_own_maps(name: str) -> None:
    """With tokens that are their positions alone, every head looks at the token at one offset."""
    model, held, tokens = zoo.build(name), nn.ModuleDict({"backbone": zoo.build(name)}), 16
    report = vitinit.initialize(model, "impulse", base="trunc_normal", position_scale=1)
    plain = state(model)
    vitinit.initialize(held, "impulse", base="trunc_normal", position_scale=18)
    scaled = state(held["backbone"])
    (found,) = [each for each in plain if plain[each].any() and torch.equal(scaled[each], 18 * plain[each])]
    assert "pos" in found
    attention_HNN = maps_of(without_images(model), images(1))[0][0, :, -tokens:, -tokens:].numpy()
    among_HRCRC = (attention_HNN / attention_HNN.sum(-1, keepdims=True)).reshape(-1, 4, 4, 4, 4)
    near, inside = (-1, 0, 1), range(4)
    masses: list[float] = []
    for grid in among_HRCRC:
        offsets = [
            [grid[r, c, r + y, c + x] for r in inside for c in inside if r + y in inside and c + x in inside]
            for y in near
            for x in near
        ]
        masses += max(offsets, key=np.mean)
    on_target = np.mean(masses)
    assert on_target > 1.2 * report.uniform
    if name != "timm ConViT":  # whose gates mix the map of positions in, after the softmax
        assert on_target == pytest.approx(report.attention_on_target, abs=2e-3)


MIXED = {"timm ConViT"}
"""Whose maps are mixed of two softmaxes: other tests have these."""


@pytest.mark.parametrize("name", sorted(set(fitting("mimetic")) - MIXED))
def test_attention_is_measured_as_the_model_computes_it(name: str) -> None:
    """Tables, masks of shifted windows, class tokens, Linears that mix heads: of weights that leave none at zero."""
    model = zoo.build(name)
    noise = generator(1)
    for parameter in model.parameters():
        if parameter.ndim > 1:
            parameter.data.add_(torch.randn(parameter.shape, generator=noise), alpha=0.3)
    measured: list[Tensor] = []
    each_attention(model, images(2), lambda number, layer, maps: measured.append(maps))
    caught = maps_of(model, images(2))
    assert len(measured) == len(caught) == len(attention_layers(model))
    for ours, theirs in zip(measured, caught, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)
