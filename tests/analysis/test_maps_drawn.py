"""Attention maps and CKA: against a second implementation from features, and as they are drawn."""

import itertools
import shutil
from dataclasses import replace

import matplotlib as mpl
import numpy as np
import pytest

from tests.records import REFERENCE
from vitinit.analysis.curves.cka import cka
from vitinit.analysis.curves.registry import CURVES
from vitinit.analysis.figures import __main__ as figures
from vitinit.analysis.figures.registry import FIGURES
from vitinit.analysis.frame import load
from vitinit.benchmark.records.store import Store, kept_path, maps_to_bytes, read_maps

mpl.use("agg")


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


def test_cka_is_the_ratio_of_means_over_batches_of_a_sum_over_quadruples():
    draw = np.random.default_rng(0)
    x, y, z = (draw.normal(size=(2, 6, 3)) * [1, 2, 5] for _ in range(3))
    y += 2 * x

    def mean(a_BnF, b_BnF):
        return np.mean([hsic_of_quadruples(a, b) for a, b in zip(a_BnF, b_BnF, strict=True)])

    expected = [[mean(a, b) / np.sqrt(mean(a, a) * mean(b, b)) for b in (x, z)] for a in (y, z)]
    np.testing.assert_allclose(cka(grams(y, z), grams(x, z)), expected, rtol=1e-10)
    rotation_FF, _ = np.linalg.qr(draw.normal(size=(3, 3)))
    np.testing.assert_allclose(cka(grams(x), grams(7 * x @ rotation_FF + 5)), [[1]], rtol=0, atol=1e-12)
    assert np.isnan(cka(np.ones((1, 2, 6, 6)), grams(x))).all(), "of a constant"


@pytest.fixture
def copy(tmp_path):
    """A copy of the study `small`, whose runs at seed 0 have kept their maps."""
    shutil.copytree(REFERENCE / "small", tmp_path / "small")
    return tmp_path


def maps_of(root, row, seed=0):
    """The run of a row on digits, its maps, and where they are or would be."""
    run = next(run for run in load([root]).cells["digits", row] if run.spec.seed == seed)
    return run, read_maps(root, run), kept_path(root, "small", run.run_id, "maps")


def test_what_was_kept_is_drawn_all_rows_at_the_seed_of_most(copy):
    run, _, path = maps_of(copy, "Mimetic", 1)
    _, moved, before = maps_of(copy, "Mimetic")
    path.write_bytes(maps_to_bytes(replace(moved, weights=run.weights)))
    before.unlink()
    study, rows = load([copy]), ["Kaiming uniform", "Trunc normal", "Imp.-3", "Imp.-5", "ConViT"]
    kept = {row: maps_of(copy, row)[1] for row in rows}
    grid = CURVES.get("cka_initializers").figures(study)["cka_initializers-digits"]
    panel = grid.data[grid.data["panel"] == "layer 3"].pivot(index="row", columns="other", values="cka")
    marked = [*rows[:4], "ConViT †"]
    its = np.stack([maps.grams_ELBnn[-1, 2] for maps in kept.values()])
    np.testing.assert_allclose(panel.loc[marked, marked], cka(its, its))
    grid = FIGURES.get("attention_training").figures(study)["attention_training-digits"]
    (axes,) = grid.axes.values()
    lines, columns = ([" ".join(text.get_text().split()) for text in texts]
                      for texts in (axes.get_yticklabels(), axes.get_xticklabels()))  # fmt: skip
    assert lines == marked
    strip = np.asarray(axes.get_images()[4].get_array())
    between = np.isnan(strip).all(0)
    maps = np.split(strip[~np.isnan(strip).all(1)][:, ~between], 6, axis=1)
    layers = {"first": 0, "middle": 1, "last": 2}
    for (when, epoch), (place, layer) in itertools.product({"before": 0, "after": -1}.items(), layers.items()):
        map_NN = kept["ConViT"].maps_ELHNN[epoch, layer, 0].astype(np.float32)
        # nothing below half the lower end of the scale: it has a logarithm
        shown = maps[columns.index(f"{place} layer, {when}")]
        np.testing.assert_array_equal(shown, np.maximum(map_NN * len(map_NN), 1 / 32))


def test_maps_of_another_run_are_not_drawn_and_damaged_ones_are_said(copy, capsys):
    for row in ("Mimetic", "ConViT"):
        run, maps, path = maps_of(copy, row)
        Store(copy).write(run.model_copy(update={"files": {}}))  # of before maps had a digest
        path.write_bytes(maps_to_bytes(replace(maps, weights="b" * 64)))
    grid = FIGURES.get("attention_training").figures(load([copy]))["attention_training-digits"]
    assert list(dict.fromkeys(grid.data["row"])) == ["Kaiming uniform", "Trunc normal", "Imp.-3", "Imp.-5"]
    path.write_bytes(path.read_bytes()[:-100])
    line = f"--results {copy} --out {copy}/out --figure attention_training"
    assert figures.main(line.split()) == 2
    assert f"{path}: no attention maps, or damaged" in capsys.readouterr().err
