"""Attention maps and CKA: against what it must be, a second implementation from features, and in the heat maps."""

from __future__ import annotations

import itertools

import matplotlib as mpl
import numpy as np
import pytest
from maps_records import DEPTH, TOKENS, keep, mapped, recorded

from vitinit.analysis.curves.cka import cka
from vitinit.analysis.curves.registry import CURVES
from vitinit.analysis.figures import __main__ as figures
from vitinit.analysis.figures.registry import FIGURES
from vitinit.analysis.frame import load
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


def test_what_has_no_cka(draw):
    constant = np.ones((1, 2, 8, 8))
    assert np.isnan(cka(constant, grams(draw.normal(size=(2, 8, 3))))).all()
    with pytest.raises(VitinitError, match="not Gram matrices of 2 x 8 and 2 x 9"):
        cka(constant, np.ones((1, 2, 9, 9)))
    with pytest.raises(VitinitError, match="batches of 4 images or more, not of 3"):
        cka(np.ones((1, 2, 3, 3)), np.ones((1, 2, 3, 3)))


# --- its heat maps ---


def heat(grid, panel):
    """The values of a panel, as a matrix."""
    its = grid.data[grid.data["panel"] == panel]
    side = its["one"].nunique()
    return its["cka"].to_numpy().reshape(side, side)


def test_heat_maps_hold_cka_of_what_was_kept_all_rows_at_the_seed_of_most(study, kept):
    (between,) = CURVES.get("cka_layers").figures(study).values()
    grams_ELBnn = kept["ConViT", 1].grams_ELBnn
    np.testing.assert_allclose(heat(between, "ConViT †, after"), cka(grams_ELBnn[-1], grams_ELBnn[-1]))
    (between,) = CURVES.get("cka_initializers").figures(study).values()
    assert list(dict.fromkeys(between.data["one"])) == ["Trunc normal", "Mimetic", "ConViT †"], "at seed 1: most maps"
    rows = np.stack([kept[row, 1].grams_ELBnn[-1, 2] for row in ("Trunc normal", "Mimetic", "ConViT")])
    np.testing.assert_allclose(heat(between, "layer 3"), cka(rows, rows))


def test_between_epochs_where_three_were_kept(study, kept):
    ((name, grid),) = CURVES.get("cka_epochs").figures(study).items()
    assert name == "cka_epochs-cifar10-Mimetic"
    grams_EBnn = kept["Mimetic", 1].grams_ELBnn[:, DEPTH - 1]
    np.testing.assert_allclose(heat(grid, f"layer {DEPTH}"), cka(grams_EBnn, grams_EBnn))


# --- attention ---


def shown(grid, row, panel):
    """A map, in times of uniform attention."""
    return np.asarray(grid.axes_dict[row, panel].get_images()[0].get_array())


def times(map_NN):
    """Nothing below half the lower end of the scale: it has a logarithm."""
    return np.maximum(map_NN.astype(np.float32) * TOKENS, 1 / 32)


def test_first_middle_and_last_layer_before_and_after_training(study, kept):
    maps_ELHNN = kept["ConViT", 1].maps_ELHNN
    for when, epoch in (("before", 0), ("after", -1)):
        ((name, grid),) = FIGURES.get(f"attention_{when}").figures(study).items()
        assert name == f"attention_{when}-cifar10"
        for layer, panel in ((0, "first layer"), (1, "middle layer"), (3, "last layer")):
            whole = times(maps_ELHNN[epoch, layer, 0])
            np.testing.assert_array_equal(shown(grid, "ConViT †", panel), whole)
            corner = shown(grid, "ConViT †", f"{panel}, zoom")
            np.testing.assert_array_equal(corner, whole[:24, :24], "three rows of eight tokens")
        (grid,) = FIGURES.get("attention_training").figures(study).values()
        np.testing.assert_array_equal(shown(grid, "ConViT †", f"last layer, {when}"), times(maps_ELHNN[epoch, 3, 0]))


def test_maps_of_another_run_are_not_drawn_and_damaged_ones_are_said(tmp_path, capsys):
    keep(tmp_path, "Mimetic", 0, weights="b" * 64)
    assert FIGURES.get("attention_before").figures(load([tmp_path])) == {}
    keep(tmp_path, "Trunc normal", 0)
    path = maps_path(tmp_path, "small", recorded("Trunc normal").run_id)
    path.write_bytes(path.read_bytes()[:-100])
    arguments = ["--results", str(tmp_path), "--out", str(tmp_path / "out"), "--figure", "attention_before"]
    assert figures.main(arguments) == 2
    assert f"{path}: no attention maps, or damaged" in capsys.readouterr().err
