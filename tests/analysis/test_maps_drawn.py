"""Attention maps and CKA: against what it must be, a second implementation from features, and in the heat maps."""

from __future__ import annotations

import itertools
import math

import matplotlib as mpl
import numpy as np
import pytest
from maps_records import DEPTH, TOKENS, keep, mapped, recorded

from vitinit.analysis.curves.cka import cka
from vitinit.analysis.curves.similarity import epochs, initializers
from vitinit.analysis.curves.similarity import layers as cka_layers
from vitinit.analysis.figures import __main__ as figures
from vitinit.analysis.figures.attention import after, before, layers, training
from vitinit.analysis.figures.kept import kept_at_one_seed
from vitinit.analysis.frame import load
from vitinit.analysis.plotting.style import caption_of
from vitinit.benchmark.records.store import maps_path
from vitinit.initializers.errors import VitinitError

mpl.use("agg")


@pytest.fixture
def draw():
    return np.random.default_rng(0)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("mapped")


@pytest.fixture(scope="module")
def kept(root):
    return mapped(root)


@pytest.fixture(scope="module")
def study(root, kept):
    return load([root])


# --- the formula ---


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


def test_a_representation_with_itself_rotated_scaled_and_moved_is_1(draw):
    features_BnF = draw.normal(size=(3, 20, 10))
    rotation_FF, _ = np.linalg.qr(draw.normal(size=(10, 10)))
    moved = 7 * features_BnF @ rotation_FF + draw.normal(size=10)
    found = cka(grams(features_BnF), grams(features_BnF, moved))
    np.testing.assert_allclose(found, [[1, 1]], rtol=0, atol=1e-12)


def test_independent_noise_is_around_0(draw):
    pairs = [(draw.normal(size=(1, 16, 30)), draw.normal(size=(1, 16, 30))) for _ in range(400)]
    unbiased = [cka(grams(x), grams(y))[0, 0] for x, y in pairs]
    assert abs(np.mean(unbiased)) < 3 * np.std(unbiased) / 20 < 0.03, "three standard errors"


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


def test_what_has_no_cka(draw):
    constant = np.ones((1, 2, 8, 8))
    assert np.isnan(cka(constant, grams(draw.normal(size=(2, 8, 3))))).all()
    with pytest.raises(VitinitError, match="not Gram matrices of 2 x 8 and 2 x 9"):
        cka(constant, np.ones((1, 2, 9, 9)))
    with pytest.raises(VitinitError, match="batches of 4 images or more, not of 3"):
        cka(np.ones((1, 2, 3, 3)), np.ones((1, 2, 3, 3)))


# --- its heat maps ---


def heat_maps(figure):
    """Panels with a map, and their values."""
    panels = [axes for axes in figure.axes if axes.get_ylabel() != "linear CKA"]
    return panels, [np.asarray(axes.collections[0].get_array()) for axes in panels]


def labels(ticks):
    return [tick.get_text() for tick in ticks if tick.get_text()]


def test_between_layers_before_and_after(study, kept):
    ((name, figure),) = cka_layers(study).items()
    assert name == "cka_layers-cifar10"
    assert "cifar10, seed 0 or 1\n† answers by its class token" in caption_of(figure)
    panels, values = heat_maps(figure)
    assert [axes.get_title() for axes in panels] == ["Trunc normal", "Mimetic", "ConViT †", "", "", ""]
    assert [panels[place].get_ylabel() for place in (0, 3)] == ["layer, before", "layer, after"]
    for place, run in enumerate([("Trunc normal", 1), ("Mimetic", 0), ("ConViT", 1)]):
        its = kept[run].grams_ELBnn
        np.testing.assert_allclose(values[place], cka(its[0], its[0]))
        np.testing.assert_allclose(values[3 + place], cka(its[-1], its[-1]))
    least = min(float(each.min()) for each in values)
    assert {axes.collections[0].get_clim() for axes in panels} == {(math.floor(10 * least) / 10, 1)}
    assert labels(panels[3].get_xticklabels()) == ["1", "2", "3", "4"]


def test_between_epochs_where_three_were_kept(study, kept):
    ((name, figure),) = epochs(study).items()
    assert name == "cka_epochs-cifar10-Mimetic"
    panels, values = heat_maps(figure)
    assert [axes.get_title() for axes in panels] == [f"layer {layer}" for layer in (1, 2, 3, 4)]
    assert labels(panels[0].get_yticklabels()) == ["0", "1", "3"]
    for layer in range(DEPTH):
        grams_EBnn = kept["Mimetic", 0].grams_ELBnn[:, layer]
        np.testing.assert_allclose(values[layer], cka(grams_EBnn, grams_EBnn))
    written = [text.get_text() for text in panels[0].texts]
    assert written == [f"{value:.2f}" for value in values[0].ravel()], "cells are large enough for their values"


def test_between_initialisations_at_one_seed_after_training(study, kept):
    ((name, figure),) = initializers(study).items()
    assert name == "cka_initializers-cifar10"
    assert "cifar10, seed 1" in caption_of(figure), "where most rows have kept maps"
    panels, values = heat_maps(figure)
    assert len(panels) == DEPTH
    assert labels(panels[0].get_yticklabels()) == ["Trunc normal", "Mimetic", "ConViT †"]
    rows = np.stack([kept[row, 1].grams_ELBnn[-1, 2] for row in ("Trunc normal", "Mimetic", "ConViT")])
    np.testing.assert_allclose(values[2], cka(rows, rows))


def test_of_seeds_at_which_as_many_rows_have_kept_maps_the_first_counts(tmp_path):
    for row, seed in itertools.product(("Mimetic", "Trunc normal"), (0, 1)):
        keep(tmp_path, row, seed)
    (runs,) = kept_at_one_seed(load([tmp_path])).values()
    assert [run.record.spec.seed for run in runs.values()] == [0, 0]


# --- attention ---


def attention(figure):
    """The axes with maps, line by line, and the maps in times of uniform attention."""
    axes = [axes for axes in figure.axes if axes.get_images() and axes.get_label() != "<colorbar>"]
    return axes, [np.asarray(each.get_images()[0].get_array()) for each in axes]


def times(map_NN):
    """Nothing below half the lower end of the scale: it has a logarithm."""
    return np.maximum(map_NN.astype(np.float32) * TOKENS, 1 / 32)


def boxes(axes, color):
    wanted = mpl.colors.to_rgba(color)
    return [patch.get_bbox().bounds for patch in axes.patches if patch.get_edgecolor() == wanted]


@pytest.mark.parametrize("draw", [before, after])
def test_first_middle_and_last_layer_each_with_its_corner(study, kept, draw):
    ((name, figure),) = draw(study).items()
    assert name == f"attention_{draw.__name__}-cifar10"
    assert "cifar10, seed 0 or 1, head 1, mean over 24 test images" in caption_of(figure)
    axes, maps = attention(figure)
    assert [each.get_ylabel() for each in axes[::6]] == ["Trunc normal", "Mimetic", "ConViT †"]
    assert [each.get_title() for each in axes[:6:2]] == ["layer 1", "layer 2", "layer 4"]
    for line, key in enumerate([("Trunc normal", 1), ("Mimetic", 0), ("ConViT", 1)]):
        its = kept[key].maps_ELHNN[0 if draw is before else -1]
        for place, layer in enumerate((0, 1, 3)):
            whole, corner = maps[6 * line + 2 * place : 6 * line + 2 * place + 2]
            np.testing.assert_array_equal(whole, times(its[layer, 0]))
            np.testing.assert_array_equal(corner, whole[:24, :24], "three rows of eight tokens")
    assert boxes(axes[0], "red") == [(-0.5, -0.5, 24, 24)]
    assert boxes(axes[1], "white") == [(first - 0.5, first - 0.5, 8, 8) for first in (0, 8, 16)]
    assert {each.get_images()[0].get_clim() for each in axes} == {(1 / 16, 16)}, "one scale for all figures"
    assert [labels(each.get_yticklabels()) for each in axes] == 3 * [["1", "64"], *[[]] * 5]
    assert [labels(each.get_xticklabels()) for each in axes] == [*[[]] * 12, *3 * [["1", "64"], ["1", "24"]]]
    assert {"key token", "query token"} <= {text.get_text() for text in figure.texts}


def test_before_and_after_beside_one_another(study, kept):
    (figure,) = training(study).values()
    axes, maps = attention(figure)
    assert [each.get_title() for each in axes[:2]] == ["layer 1\nbefore", "layer 1\nafter"]
    np.testing.assert_array_equal(maps[-2], times(kept["ConViT", 1].before_LHNN[3, 0]))
    np.testing.assert_array_equal(maps[-1], times(kept["ConViT", 1].after_LHNN[3, 0]))


def test_all_layers_of_each_row(study, kept):
    drawn = layers(study)
    assert list(drawn) == [f"attention_layers-cifar10-{row}" for row in ("Trunc_normal", "Mimetic", "ConViT")]
    axes, maps = attention(drawn["attention_layers-cifar10-Mimetic"])
    both = [*kept["Mimetic", 0].before_LHNN, *kept["Mimetic", 0].after_LHNN]
    assert len(maps) == len(both) == 2 * DEPTH
    for found, layer_HNN in zip(maps, both, strict=True):
        np.testing.assert_array_equal(found, times(layer_HNN[0]))
    assert not any(boxes(each, "white") for each in axes), "on maps this small they would hide the diagonal"


def test_maps_of_another_run_are_not_drawn_and_damaged_ones_are_said(tmp_path, capsys):
    keep(tmp_path, "Mimetic", 0, weights="b" * 64)
    assert before(load([tmp_path])) == {}
    keep(tmp_path, "Trunc normal", 0)
    path = maps_path(tmp_path, "small", recorded("Trunc normal").run_id)
    path.write_bytes(path.read_bytes()[:-100])
    arguments = ["--results", str(tmp_path), "--out", str(tmp_path / "out"), "--figure", "attention_before"]
    assert figures.main(arguments) == 2
    assert f"{path}: no attention maps, or damaged" in capsys.readouterr().err
