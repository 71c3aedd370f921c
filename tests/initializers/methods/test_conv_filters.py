"""Filters of `conv_filters` against the formulas of arXiv 2404.01139, one by one in float64."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from small_models import CONVMIXER, VIT, f64, images, model, streams

from initializers import registry
from initializers.errors import VitinitError
from initializers.initialize import initialize

WIDTH = 600


def filters(kernel_size: int, **params: Any) -> tuple[np.ndarray, np.ndarray]:
    """The first layer's filters, D x f x f, and their biases."""
    m = model(CONVMIXER, kernel_size=kernel_size, width=WIDTH, depth=1)
    initialize(m, registry.build("trunc_normal", {}), registry.build("conv_filters", params), streams(0))
    layer = m.blocks[0][0].fn[0]
    return f64(layer.weight)[:, 0], f64(layer.bias)


def is_uniform(values: np.ndarray, bound: float) -> bool:
    """Within U(+-bound), to its edges, with its standard deviation."""
    inside = np.abs(values).max() <= bound and np.abs(values).max() > 0.97 * bound
    return bool(inside and values.std() == pytest.approx(bound / math.sqrt(3), rel=0.1))


@pytest.mark.parametrize(
    ("params", "f"), [({"filter": "random"}, 3), ({}, 8), ({"filter": "gaussian", "variance": 1.0}, 3)]
)
def test_biases_are_uniform(params: dict[str, Any], f: int) -> None:
    assert is_uniform(filters(f, **params)[1], 1 / f)


def test_random_filters_are_uniform() -> None:
    f = 5
    assert is_uniform(filters(f, filter="random")[0], 1 / f)


@pytest.mark.parametrize(("f", "n"), [(3, 1), (3, 9), (5, 4), (8, 3)])
def test_a_box_has_n_equal_entries_and_an_impulse_one(f: int, n: int) -> None:
    weight_DPQ, _ = filters(f, filter="box", entries=n) if n > 1 else filters(f)
    assert ((weight_DPQ != 0).sum((1, 2)) == n).all()
    np.testing.assert_allclose(weight_DPQ[weight_DPQ != 0], math.sqrt(1 / (n * f)), rtol=1e-6)
    # each place is as likely as any other: within five standard deviations
    share = (weight_DPQ != 0).mean(0)
    assert np.abs(share - n / f**2).max() <= 5 * math.sqrt(n / f**2 * (1 - n / f**2) / WIDTH)


@pytest.mark.parametrize(("f", "s"), [(5, 0.3)])
def test_gaussians_have_their_shape_a_place_for_a_centre_and_one_scale(f: int, s: float) -> None:
    weight_DPQ, _ = filters(f, filter="gaussian", variance=s)
    shapes = {}
    for c1 in range(f):
        for c2 in range(f):
            shapes[c1, c2] = np.array(
                [[math.exp(-((p - c1) ** 2 + (q - c2) ** 2) / (2 * s)) for q in range(f)] for p in range(f)]
            )
    centres = [np.unravel_index(weight.argmax(), (f, f)) for weight in weight_DPQ]
    assert len(set(centres)) == f**2
    unscaled_DPQ = np.stack([shapes[tuple(centre)] for centre in centres])
    scale = math.sqrt((unscaled_DPQ**2).sum((1, 2)).mean() * f)
    np.testing.assert_allclose(weight_DPQ, unscaled_DPQ / scale, rtol=1e-5, atol=1e-9)
    assert (weight_DPQ**2).sum((1, 2)).mean() == pytest.approx(1 / f, rel=1e-5), "as large as an impulse"


def test_layers_have_filters_of_their_own() -> None:
    m = model(CONVMIXER)
    initialize(m, registry.build("trunc_normal", {}), registry.build("conv_filters", {}), streams(0))
    first, second = (m.blocks[layer][0].fn[0].weight for layer in (0, 1))
    assert not torch.equal(first, second)


@pytest.mark.parametrize("frozen", [True, False])
def test_filters_and_their_biases_alone_are_frozen(frozen: bool) -> None:
    m = model(CONVMIXER)
    initialize(m, registry.build("trunc_normal", {}), registry.build("conv_filters", {"frozen": frozen}), streams(0))
    untrained = {name for name, parameter in m.named_parameters() if not parameter.requires_grad}
    spatial = {f"blocks.{layer}.0.fn.0.{part}" for layer in (0, 1) for part in ("weight", "bias")}
    assert untrained == (spatial if frozen else set())


def test_the_report_says_nothing_of_attention() -> None:
    m = model(CONVMIXER)
    parts = registry.build("trunc_normal", {}), registry.build("conv_filters", {})
    report, _ = initialize(m, *parts, streams(0), images_BCHW=images())
    spatial = [f"blocks.{layer}.0.fn.0.{part}" for layer in (0, 1) for part in ("weight", "bias")]
    assert report.method_parameters == spatial
    assert (report.norms, report.offset_maps, report.images) == ([], None, 0)
    assert (report.pseudo_input, report.real_images) == (None, None)


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"filter": "box"}, "'box' needs entries"),
        ({"filter": "impulse", "entries": 2}, "no other filter takes it"),
        ({"filter": "gaussian"}, "'gaussian' needs variance"),
        ({"filter": "random", "variance": 1.0}, "no other filter takes it"),
        ({"filter": "box", "entries": 0}, "greater than 0"),
    ],
)
def test_parameters_without_effect_are_refused(params: dict[str, Any], words: str) -> None:
    with pytest.raises(VitinitError, match=words):
        registry.build("conv_filters", params)


def test_models_that_do_not_fit_are_refused() -> None:
    with pytest.raises(VitinitError, match="VisionTransformer has none; choose a ConvMixer"):
        registry.build("conv_filters", {}).check(model(VIT))
    with pytest.raises(VitinitError, match="10 entries do not fit in a filter of 9"):
        registry.build("conv_filters", {"filter": "box", "entries": 10}).check(model(CONVMIXER))
