"""Full attention maps: which maps, at which place, with which boxes."""

from __future__ import annotations

import matplotlib as mpl
import numpy as np
import pytest
from figure_checks import assert_readable
from synthetic_records import done, write

from analysis.figures import __main__ as figures
from analysis.figures.attention import after, before, layers, training
from analysis.frame import load
from analysis.plotting.style import set_defaults
from benchmark.records.maps import AttentionMaps, maps_to_bytes
from benchmark.records.store import maps_path

mpl.use("agg")

TOKENS, HEADS, DEPTH = 64, 3, 4
"""Of the synthetic records: 8 x 8 tokens."""


def keep(root, record, seed, weights="a" * 64):
    """Random maps for a record, whose weights are all a."""
    shares = np.random.default_rng(seed).dirichlet(np.ones(TOKENS), size=(2, DEPTH, record.spec.model.heads, TOKENS))
    grams = np.ones((2, DEPTH, 1, 4, 4), np.float32)
    maps = AttentionMaps((0, record.spec.recipe.epochs), shares.astype(np.float16), grams, 64, weights)
    path = maps_path(root, record.study, record.run_id)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(maps_to_bytes(maps))
    return maps


def record(row, **which):
    return done(row, **which).model_copy(update={"weights": "a" * 64})


@pytest.fixture
def root(tmp_path):
    """Trunc normal has maps at seed 1 only, Imp.-3 has none, Mimetic has some at both seeds."""
    for row in ("Mimetic", "Trunc normal", "Imp.-3"):
        write(tmp_path, *(record(row, seed=seed) for seed in (0, 1)))
    return tmp_path


@pytest.fixture
def kept(root):
    return {
        (row, seed): keep(root, record(row, seed=seed), number)
        for number, (row, seed) in enumerate([("Trunc normal", 1), ("Mimetic", 0), ("Mimetic", 1)])
    }


def shown(figure):
    """The axes with maps, line by line, and the maps in times of uniform attention."""
    axes = [axes for axes in figure.axes if axes.get_images() and axes.get_label() != "<colorbar>"]
    return axes, [np.asarray(each.get_images()[0].get_array()) for each in axes]


def expected(map_NN):
    """Nothing below half the lower end of the scale: it has a logarithm."""
    return np.maximum(map_NN.astype(np.float32) * TOKENS, 1 / 32)


def boxes(axes, color):
    wanted = mpl.colors.to_rgba(color)
    return [patch.get_bbox().bounds for patch in axes.patches if patch.get_edgecolor() == wanted]


@pytest.mark.parametrize("draw", [before, after])
def test_first_middle_and_last_layer_each_with_its_corner(root, kept, draw):
    ((name, figure),) = draw(load([root])).items()
    assert name == f"attention_{draw.__name__}-cifar10"
    assert "cifar10, seed 0 or 1, head 1, mean over 64 test images" in figure.get_suptitle()
    axes, maps = shown(figure)
    assert [each.get_ylabel() for each in axes] == ["Trunc normal", *[""] * 5, "Mimetic", *[""] * 5]
    assert [each.get_title() for each in axes[:6:2]] == ["layer 1", "layer 2", "layer 4"]
    for line, key in enumerate([("Trunc normal", 1), ("Mimetic", 0)]):
        its = kept[key].before_LHNN if draw is before else kept[key].after_LHNN
        for place, layer in enumerate((0, 1, 3)):
            whole, corner = maps[6 * line + 2 * place : 6 * line + 2 * place + 2]
            np.testing.assert_array_equal(whole, expected(its[layer, 0]))
            np.testing.assert_array_equal(corner, whole[:24, :24], "three rows of eight tokens")
    assert boxes(axes[0], "red") == [(-0.5, -0.5, 24, 24)]
    assert boxes(axes[1], "white") == [(first - 0.5, first - 0.5, 8, 8) for first in (0, 8, 16)]
    assert {each.get_images()[0].get_clim() for each in axes} == {(1 / 16, 16)}, "one scale for all figures"


def test_tokens_are_numbered_left_of_each_line_and_below_the_last(root, kept):
    (figure,) = before(load([root])).values()
    axes, _ = shown(figure)

    def numbers(labels):
        return [text.get_text() for text in labels if text.get_text()]

    assert [numbers(each.get_yticklabels()) for each in axes] == 2 * [["1", "64"], *[[]] * 5]
    assert [numbers(each.get_xticklabels()) for each in axes] == [*[[]] * 6, *3 * [["1", "64"], ["1", "24"]]]
    assert {"key token", "query token"} <= {text.get_text() for text in figure.texts}


def test_before_and_after_beside_one_another(root, kept):
    (figure,) = training(load([root])).values()
    axes, maps = shown(figure)
    assert [each.get_title() for each in axes[:2]] == ["layer 1\nbefore", "layer 1\nafter"]
    mimetic = kept["Mimetic", 0]
    np.testing.assert_array_equal(maps[-2], expected(mimetic.before_LHNN[3, 0]))
    np.testing.assert_array_equal(maps[-1], expected(mimetic.after_LHNN[3, 0]))


def test_all_layers_of_each_row(root, kept):
    drawn = layers(load([root]))
    assert list(drawn) == ["attention_layers-cifar10-Trunc_normal", "attention_layers-cifar10-Mimetic"]
    axes, maps = shown(drawn["attention_layers-cifar10-Mimetic"])
    both = [*kept["Mimetic", 0].before_LHNN, *kept["Mimetic", 0].after_LHNN]
    assert len(maps) == len(both) == 2 * DEPTH
    for found, layer_HNN in zip(maps, both, strict=True):
        np.testing.assert_array_equal(found, expected(layer_HNN[0]))
    assert not any(boxes(each, "white") for each in axes), "on maps this small they would hide the diagonal"


def test_it_fits_the_page_with_text_that_can_be_read(root, kept):
    with mpl.rc_context():
        set_defaults()
        (figure,) = before(load([root])).values()
        assert_readable(figure)


def test_a_row_whose_maps_are_gone_leaves_the_others_as_they_were(root, kept):
    (figure,) = before(load([root])).values()
    first, all_maps = shown(figure)
    maps_path(root, "small", record("Trunc normal", seed=1).run_id).unlink()
    (figure,) = before(load([root])).values()
    second, maps = shown(figure)
    for one, other in zip(maps, all_maps[6:], strict=True):
        np.testing.assert_array_equal(one, other)
    assert second[0].get_images()[0].get_clim() == first[0].get_images()[0].get_clim()


def test_maps_of_another_run_are_not_drawn(root):
    keep(root, record("Mimetic", seed=0), 0, weights="b" * 64)
    assert before(load([root])) == {}


def test_damaged_maps_are_said(root, kept, tmp_path, capsys):
    path = maps_path(root, "small", record("Mimetic", seed=0).run_id)
    path.write_bytes(path.read_bytes()[:-100])
    arguments = ["--results", str(root), "--out", str(tmp_path / "out"), "--figure", "attention_before"]
    assert figures.main(arguments) == 2
    assert f"{path}: no attention maps, or damaged" in capsys.readouterr().err
