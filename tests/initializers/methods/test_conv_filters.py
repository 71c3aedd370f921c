"""Filters of `conv_filters` against the formulas of arXiv 2404.01139, one by one in float64."""

import math

import numpy as np
import pytest
from small_models import CONVMIXER, applied, assert_uniform, f64, model

WIDTH = 600


def filters(kernel_size, **params):
    """The first layer's filters, D x f x f, whose biases are uniform within 1/f."""
    spec = CONVMIXER.model_copy(update={"kernel_size": kernel_size, "width": WIDTH, "depth": 1})
    layer = applied(model(spec), "conv_filters", **params).blocks[0][0].fn[0]
    assert_uniform(f64(layer.bias), 1 / kernel_size)
    return f64(layer.weight)[:, 0]


def test_random_filters_are_uniform():
    assert_uniform(filters(5, filter="random"), 1 / 5)


@pytest.mark.parametrize(("f", "n"), [(3, 1), (3, 9), (8, 3)])
def test_a_box_has_n_equal_entries_and_an_impulse_one(f, n):
    weight_DPQ = filters(f, filter="box", entries=n) if n > 1 else filters(f)
    assert ((weight_DPQ != 0).sum((1, 2)) == n).all()
    np.testing.assert_allclose(weight_DPQ[weight_DPQ != 0], math.sqrt(1 / (n * f)), rtol=1e-6)
    # each place is as likely as any other: within five standard deviations
    share = (weight_DPQ != 0).mean(0)
    assert np.abs(share - n / f**2).max() <= 5 * math.sqrt(n / f**2 * (1 - n / f**2) / WIDTH)


def test_gaussians_have_their_shape_a_place_for_a_centre_and_one_scale():
    f, s = 5, 0.3
    weight_DPQ, place = filters(f, filter="gaussian", variance=s), np.arange(f)
    bell = np.exp(-((place[:, None] - place) ** 2) / (2 * s))  # by distance from each centre
    centres = [np.unravel_index(weight.argmax(), (f, f)) for weight in weight_DPQ]
    assert len(set(centres)) == f**2
    unscaled_DPQ = np.stack([np.outer(bell[row], bell[column]) for row, column in centres])
    scale = math.sqrt((unscaled_DPQ**2).sum((1, 2)).mean() * f)  # as large as an impulse
    np.testing.assert_allclose(weight_DPQ, unscaled_DPQ / scale, rtol=1e-5, atol=1e-9)
