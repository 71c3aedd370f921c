"""CKA from Gram matrices against what it must be, a second implementation from features, and in the heat maps."""

from __future__ import annotations

import itertools

import matplotlib as mpl
import numpy as np
import pytest
from figure_checks import assert_readable
from synthetic_records import done, write

from analysis.curves.cka import cka
from analysis.curves.similarity import epochs, initializers, layers
from analysis.frame import load
from analysis.plotting.style import set_defaults
from benchmark.records.maps import AttentionMaps, maps_to_bytes
from benchmark.records.store import maps_path
from initializers.errors import VitinitError

mpl.use("agg")


@pytest.fixture
def draw():
    return np.random.default_rng(0)


def grams(*features_BnF):
    """Gram matrices of representations, M x B x n x n."""
    return np.stack([x @ x.swapaxes(-1, -2) for x in features_BnF])


def hsic_of_quadruples(x_nF, y_nF):
    """HSIC_1 as a mean over all ordered quadruples of different images (Song et al., 2012); nothing is centred."""
    total = 0.0
    quadruples = list(itertools.permutations(range(len(x_nF)), 4))
    for i, j, q, r in quadruples:
        total += (x_nF[i] @ x_nF[j]) * (y_nF[i] @ y_nF[j] + y_nF[q] @ y_nF[r] - 2 * y_nF[i] @ y_nF[q])
    return total / len(quadruples)


def biased(x_nF, y_nF):
    """Linear CKA as Kornblith et al. (2019) have it, from features."""
    x_nF, y_nF = x_nF - x_nF.mean(0), y_nF - y_nF.mean(0)
    norms = np.linalg.norm(x_nF.T @ x_nF) * np.linalg.norm(y_nF.T @ y_nF)
    return np.linalg.norm(x_nF.T @ y_nF) ** 2 / norms


def test_a_representation_with_itself_rotated_scaled_and_moved_is_1(draw):
    features_BnF = draw.normal(size=(3, 20, 10))
    rotation_FF, _ = np.linalg.qr(draw.normal(size=(10, 10)))
    moved = 7 * features_BnF @ rotation_FF + draw.normal(size=10)
    found = cka(grams(features_BnF), grams(features_BnF, moved))
    np.testing.assert_allclose(found, [[1, 1]], rtol=0, atol=1e-12)


def test_independent_noise_is_around_0_where_the_biased_estimate_is_not(draw):
    pairs = [(draw.normal(size=(1, 16, 30)), draw.normal(size=(1, 16, 30))) for _ in range(400)]
    unbiased = [cka(grams(x), grams(y))[0, 0] for x, y in pairs]
    assert abs(np.mean(unbiased)) < 3 * np.std(unbiased) / 20 < 0.03, "three standard errors"
    assert min(unbiased) < 0 < max(unbiased)
    assert np.mean([biased(x[0], y[0]) for x, y in pairs]) > 0.5


def test_it_is_the_ratio_of_means_over_batches_of_a_sum_over_quadruples(draw):
    x, y, z = (draw.normal(size=(2, 6, 3)) * [1, 2, 5] for _ in range(3))
    y += 2 * x

    def mean(a_BnF, b_BnF):
        return np.mean([hsic_of_quadruples(a, b) for a, b in zip(a_BnF, b_BnF, strict=True)])

    expected = [[mean(a, b) / np.sqrt(mean(a, a) * mean(b, b)) for b in (x, z)] for a in (y, z)]
    np.testing.assert_allclose(cka(grams(y, z), grams(x, z)), expected, rtol=1e-10)


def test_features_that_are_centred_within_a_batch_give_the_same(draw):
    """Kept Gram matrices are of such features, in float32."""
    x, y = draw.normal(size=(4, 32, 50)) + 3, draw.normal(size=(4, 32, 40))
    y[..., :20] += x[..., :20]
    centred = [(a - a.mean(1, keepdims=True)) for a in (x, y)]
    kept = grams(centred[0]).astype(np.float32), grams(centred[1]).astype(np.float32)
    np.testing.assert_allclose(cka(*kept), cka(grams(x), grams(y)), atol=1e-5)


def test_a_constant_representation_has_no_cka(draw):
    constant = np.ones((1, 2, 8, 8))
    assert np.isnan(cka(constant, grams(draw.normal(size=(2, 8, 3))))).all()


def test_other_images_and_small_batches_are_refused(draw):
    with pytest.raises(VitinitError, match="not Gram matrices of 2 x 8 and 2 x 9"):
        cka(np.ones((1, 2, 8, 8)), np.ones((1, 2, 9, 9)))
    with pytest.raises(VitinitError, match="batches of 4 images or more, not of 3"):
        cka(np.ones((1, 2, 3, 3)), np.ones((1, 2, 3, 3)))


@pytest.fixture
def kept(tmp_path, draw):
    """Features at epochs 0, 1 and 3 of two rows at seed 1; a third row has maps at seed 0 only."""
    found = {}
    for row, seed, at in (("Mimetic", 1, (0, 1, 3)), ("ConViT", 1, (0, 3)), ("Imp.-3", 0, (0, 3))):
        record = done(row, seed=seed).model_copy(update={"weights": "a" * 64})
        write(tmp_path, record)
        features = draw.normal(size=(len(at), 4, 2, 12, 30)).cumsum(1)
        heads = record.spec.model.heads
        maps = np.full((len(at), 4, heads, 64, 64), 1 / 64, np.float16)
        gram = (features @ features.swapaxes(-1, -2)).astype(np.float32)
        path = maps_path(tmp_path, "small", record.run_id)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(maps_to_bytes(AttentionMaps(at, maps, gram, 24, "a" * 64)))
        found[row] = gram
    return found


@pytest.fixture
def study(tmp_path, kept):
    return load([tmp_path])


def shown(figure):
    """Panels with a map, and their values."""
    panels = [axes for axes in figure.axes if axes.get_ylabel() != "linear CKA"]
    return panels, [np.asarray(axes.collections[0].get_array()) for axes in panels]


def labels(ticks):
    return [tick.get_text() for tick in ticks]


def test_between_layers_before_and_after(study, kept):
    ((name, figure),) = layers(study).items()
    assert name == "cka_layers-cifar10"
    assert "cifar10, seed 0 or 1\n† answers by its class token" in figure.get_suptitle()
    panels, values = shown(figure)
    assert [axes.get_title() for axes in panels] == ["Mimetic", "Imp.-3", "ConViT †", "", "", ""]
    assert [panels[place].get_ylabel() for place in (0, 3)] == ["layer, before", "layer, after"]
    for place, row in enumerate(["Mimetic", "Imp.-3", "ConViT"]):
        np.testing.assert_allclose(values[place], cka(kept[row][0], kept[row][0]))
        np.testing.assert_allclose(values[3 + place], cka(kept[row][-1], kept[row][-1]))
    assert {axes.collections[0].get_clim() for axes in panels} == {(0, 1)}
    assert labels(panels[3].get_xticklabels()) == ["1", "2", "3", "4"]


def test_between_epochs_where_three_were_kept(study, kept):
    ((name, figure),) = epochs(study).items()
    assert name == "cka_epochs-cifar10-Mimetic"
    panels, values = shown(figure)
    assert [axes.get_title() for axes in panels] == [f"layer {layer}" for layer in (1, 2, 3, 4)]
    assert labels(panels[0].get_yticklabels()) == ["0", "1", "3"]
    for layer in range(4):
        grams_EBnn = kept["Mimetic"][:, layer]
        np.testing.assert_allclose(values[layer], cka(grams_EBnn, grams_EBnn))
    written = [text.get_text() for text in panels[0].texts]
    assert written == [f"{value:.2f}" for value in values[0].ravel()], "cells are large enough for their values"


def test_between_initialisations_at_one_seed_after_training(study, kept):
    ((name, figure),) = initializers(study).items()
    assert name == "cka_initializers-cifar10"
    assert "cifar10, seed 1" in figure.get_suptitle(), "where most rows have kept maps"
    panels, values = shown(figure)
    assert len(panels) == 4
    assert labels(panels[0].get_yticklabels()) == ["Mimetic", "ConViT †"]
    between = cka(kept["Mimetic"][-1, 2:3], kept["ConViT"][-1, 2:3])[0, 0]
    np.testing.assert_allclose(values[2], [[1, between], [between, 1]])


@pytest.mark.parametrize("figures", [layers, epochs, initializers])
def test_it_fits_the_page_with_text_that_can_be_read(study, figures):
    with mpl.rc_context():
        set_defaults()
        (figure,) = figures(study).values()
        assert_readable(figure)
