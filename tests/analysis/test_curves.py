"""Curves of what happens inside a model: what they draw, looked up in the drawn objects, and what is said otherwise."""

from __future__ import annotations

import itertools
import math
import statistics
from hashlib import sha256

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
from figure_checks import drawn
from synthetic_records import done, finished, several, spec, with_probes, write

from vitinit.analysis.curves import __main__ as curves
from vitinit.analysis.curves.efficiency import sample_efficiency
from vitinit.analysis.curves.gating import gating
from vitinit.analysis.curves.layers import QUANTITIES, over_epochs
from vitinit.analysis.curves.layers import charts as layers_charts
from vitinit.analysis.curves.locality import charts as locality_charts
from vitinit.analysis.curves.locality import locality
from vitinit.analysis.curves.registry import CURVES
from vitinit.analysis.frame import load
from vitinit.analysis.plotting.style import caption_of, looks

mpl.use("agg")

SIDE, DEPTH, GPSA, EPOCHS = 8, 4, 3, [0, 1, 2]
"""Of the synthetic records."""
PLACES = list(itertools.product(range(SIDE), repeat=2))
UNIFORM = {
    "nonlocality": statistics.mean(math.dist(a, b) for a in PLACES for b in PLACES),
    "nonlocality_reference": statistics.mean(math.dist(a, b) for a in PLACES for b in PLACES),
    "attention_entropy": math.log(64),
    "effective_receptive_field": statistics.mean(math.dist(a, (4, 4)) for a in PLACES),
    "impulse_mass": 1 / 64,
}


@pytest.fixture(autouse=True)
def close():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def records():
    """Three rows of two seeds with probes."""
    return {
        (row, seed): with_probes(done(row, (30.0, 40.0), seed=seed), number)
        for number, (row, seed) in enumerate(itertools.product(("Mimetic", "Imp.-3", "ConViT"), (0, 1)))
    }


@pytest.fixture(scope="module")
def study(tmp_path_factory, records):
    """And on another dataset one row of one seed."""
    other = with_probes(done("Mimetic", (30.0, 40.0), dataset="digits"), 9)
    return load([write(tmp_path_factory.mktemp("probes"), *records.values(), other)])


def of_layer(record, name, layer):
    """A quantity over epochs, mean over heads."""
    found = [getattr(probe, name)[layer] for probe in record.probes]
    return [statistics.mean(value) if isinstance(value, list) else value for value in found]


@pytest.mark.parametrize("name", QUANTITIES)
def test_a_line_a_layer_is_the_mean_over_heads_and_seeds(study, records, name):
    figures = over_epochs(study, name)
    has_target = name == "impulse_mass"
    assert list(figures) == [f"{name}-cifar10"] if has_target else [f"{name}-digits", f"{name}-cifar10"]
    panels, title = figures[f"{name}-cifar10"].axes, figures[f"{name}-cifar10"].get_suptitle()
    assert ", cifar10 " in f"{' '.join(title.split())} "
    rows = ["Imp.-3"] if has_target else ["Mimetic", "Imp.-3", "ConViT"]
    assert [axes.get_title() for axes in panels] == [f"{row}: n=2{' †' * (row == 'ConViT')}" for row in rows]
    assert ("† answers by its class token" in caption_of(figures[f"{name}-cifar10"])) == ("ConViT" in rows)
    assert len({axes.get_ylim() for axes in panels}) == 1, "shared axes"
    colours = set()
    for row, axes in zip(rows, panels, strict=True):
        *layers, uniform = drawn(axes)
        assert len(layers) == (2 if has_target else DEPTH)
        for layer, (x, y, colour, _) in enumerate(layers):
            pairs = list(zip(*(of_layer(records[row, seed], name, layer) for seed in (0, 1)), strict=True))
            assert x == EPOCHS
            assert y == pytest.approx([(a + b) / 2 for a, b in pairs])
            upper = axes.collections[layer].get_paths()[0].vertices[:, 1].max()
            assert upper == pytest.approx(max((a + b) / 2 + abs(a - b) / 2**0.5 for a, b in pairs))
            colours.add((layer, colour))
        assert uniform[1] == pytest.approx([UNIFORM[name]] * 2)
    assert len(colours) == len(layers), "a layer has its colour in every panel"
    light = [np.dot((0.2126, 0.7152, 0.0722), mpl.colors.to_rgb(colour)) for _, colour in sorted(colours)]
    assert light == sorted(light), "from dark to light"
    assert light[-1] < 0.8, "seen on white"


def test_a_long_label_loses_its_own_end_not_what_follows_it(tmp_path):
    row = "ConViT, ten gated layers of twelve, locality strength 1, " + "x" * 20
    write(tmp_path, *(with_probes(done("ConViT", (30.0, 40.0), seed=seed, label=row), seed) for seed in (0, 1)))
    study = load([tmp_path])
    (axes,) = over_epochs(study, "nonlocality")["nonlocality-cifar10"].axes
    assert axes.get_title().replace("\n", " ").startswith("ConViT, ten gated layers of twelve")
    assert axes.get_title().endswith("…: n=2 †")
    (figure,) = gating(study).values()
    assert figure.get_suptitle().replace("\n", " ").endswith(", cifar10, seed 0 (the first of 2)")


def test_gates_of_the_first_seed_with_their_mean(study, records):
    ((name, figure),) = gating(study).items()
    assert name == "gating-cifar10-ConViT"
    assert "ConViT, cifar10, seed 0 (the first of 2)" in figure.get_suptitle()
    assert [axes.get_title() for axes in figure.axes] == [f"layer {layer}" for layer in range(1, GPSA + 1)]
    probes = records["ConViT", 0].probes
    for layer, axes in enumerate(figure.axes):
        *heads, mean = drawn(axes)
        assert axes.get_ylim() == (0, 1)
        assert [y for _, y, *_ in heads] == [[probe.gating[layer][head] for probe in probes] for head in range(4)]
        assert mean[1] == pytest.approx([statistics.mean(probe.gating[layer]) for probe in probes])
        assert mean[2] == "black"
        assert len({colour for _, _, colour, _ in heads}) == 4


def test_rows_and_datasets_that_a_name_cannot_tell_apart_have_files_of_their_own(tmp_path):
    for seed, label in enumerate(("ConViT", "ConViT+", "x" * 300)):
        write(tmp_path / "rows", with_probes(done("ConViT", (10.0, 20.0), label=label, seed=seed)))
    long = f"{'x' * 71}-{sha256(b'x' * 300).hexdigest()[:8]}"
    assert list(gating(load([tmp_path / "rows"]))) == [
        f"gating-cifar10-{part}" for part in ("ConViT", "ConViT-2", long)
    ]
    folder = f"folder:/data/{'images_of_the_laboratory/' * 5}"
    write(tmp_path / "data", *(with_probes(done("Mimetic", dataset=f"{folder}{name}")) for name in ("cells", "tissue")))
    assert len(layers_charts(load([tmp_path / "data"]), "nonlocality")) == 2


def test_heads_that_coincide_are_said_to(tmp_path):
    run = with_probes(done("ConViT", (10.0, 20.0)))
    same = [[0.7] * 4, [0.7, 0.6, 0.7, 0.7], [0.5, 0.5, 0.515, 0.5]]
    write(tmp_path, run.model_copy(update={"probes": [p.model_copy(update={"gating": same}) for p in run.probes]}))
    (figure,) = gating(load([tmp_path])).values()
    titles = [axes.get_title() for axes in figure.axes]
    assert titles == ["layer 1\nheads coincide", "layer 2", "layer 3\nheads coincide"]
    *widths, _ = [line.get_linewidth() for line in figure.axes[0].lines]
    assert widths == sorted(widths, reverse=True), "the first shows beside the last"
    assert len(set(widths)) == 4


def test_accuracy_over_locality_strength_and_gpsa_layers(tmp_path):
    def convit(strength, layers, seed, **which):
        label = f"ConViT, {strength:g}, {layers}"
        top1 = 50 + 10 * math.log10(strength) + layers + seed
        params = {"locality_strength": strength}
        return done("ConViT", (top1,), label=label, seed=seed, params=params, gpsa_layers=layers, **which)

    write(tmp_path, *(convit(a, layers, seed) for a in (0.1, 1.0) for layers in (1, 3) for seed in (0, 1)))
    write(tmp_path, convit(1.0, 3, 0, dataset="digits"))
    same = {"heads": 4, "position": "learned", "pool": "token"}
    write(tmp_path, *(done("Trunc normal", (20.0 + seed,), seed=seed, label="DeiT", **same) for seed in (0, 2)))
    write(tmp_path, done("Trunc normal", (99.0,), label="narrow", width=24, **same))
    mimetic = spec("Trunc normal", epochs=1, **same).model_copy(update={"method": spec("Mimetic").method})
    write(tmp_path, finished(mimetic, (99.0,), study="small", row="DeiT with a method"))
    ((name, figure),) = locality(load([tmp_path])).items()
    assert name == "locality-cifar10", "digits has one value of each"
    assert "cifar10: n=2" in figure.get_suptitle()
    strength, layers = figure.axes
    # 50 + 10 lg(strength) + layers, and 0.5 for the mean of the seeds 0 and 1
    assert [line[:2] for line in drawn(strength)] == [([0.1, 1.0], [41.5, 51.5]), ([0.1, 1.0], [43.5, 53.5])]
    assert strength.get_xscale() == "log"
    assert [line[:2] for line in drawn(layers)] == [([0, 1, 3], [21, 41.5, 43.5]), ([0, 1, 3], [21, 51.5, 53.5])]
    assert [text.get_text() for text in strength.get_legend().get_texts()] == ["1", "3"]
    assert [text.get_text() for text in layers.get_legend().get_texts()] == ["0.1", "1"]


def convits(root, *settings):
    """Of so many epochs, at these strengths."""
    for epochs, strength in settings:
        params = {"locality_strength": strength}
        write(root, done("ConViT", (10.0,) * epochs, label=f"ConViT {strength}", params=params))
    return load([root])


def test_every_setting_over_locality_has_a_chart_of_its_own(tmp_path):
    figures = locality(convits(tmp_path / "three", *itertools.product((1, 2, 3), (1.0, 2.0))))
    assert len(figures) == len({figure.get_suptitle().splitlines()[0] for figure in figures.values()}) == 3
    assert locality(convits(tmp_path / "mixed", (1, 0.1), (2, 1.0))) == {}, "nothing is several values of one setting"
    for layers in (1, 2):  # the number of GPSA layers of one row is set by blocks: each number has its column
        several(tmp_path, {"ConViT": (40.0, 42.0)}, params={"locality_strength": 1.0}, gpsa_layers=layers)
    study = load([tmp_path], "small")
    assert len(study.columns) == 2
    ((name, chart),) = locality_charts(study).items()
    assert (name, chart.where) == ("locality-cifar10", "cifar10: n=2")
    assert {panel.column for panel in chart.panels} == {""}


def test_sample_efficiency_is_the_gain_by_seed_relative_to_the_baseline(tmp_path):
    several(tmp_path, {"Mimetic": (30.0, 33.0, 99.0), "Trunc normal": (20.0, 20.0)}, train_size=500)
    several(tmp_path, {"Mimetic": (30.0, 30.0), "Trunc normal": (0.0, 20.0)}, train_size=1000)
    several(tmp_path, {"Mimetic": (50.0, 61.0), "Trunc normal": (50.0, 50.0)}, train_size=5000)
    study = load([tmp_path])
    ((name, figure),) = sample_efficiency(study).items()
    assert name == "sample_efficiency-cifar10"
    accuracy, gain = figure.axes
    colour = looks(study)["Mimetic"].color
    assert next(line for line in drawn(accuracy) if line[2] == colour)[:2] == ([500, 1000, 5000], [54.0, 30.0, 55.5])
    mimetic, zero = drawn(gain)
    pairs = [(50 + 65) / 2, 50, (0 + 22) / 2]
    assert mimetic[:3] == ([500, 1000, 5000], pytest.approx(pairs), colour), "pairs alone, and no base of 0"
    assert zero[1] == [0, 0]
    assert gain.get_title() == "gain relative to Trunc normal: n=1 to 2"
    (other,) = sample_efficiency(study, "Mimetic").values()
    assert other.axes[1].get_title().startswith("gain relative to Mimetic: n=")
    band = other.axes[1].collections[0].get_paths()[0].vertices[:, 1]
    fell = [-100.0, 100 * (20 / 30 - 1)]  # on 1,000 images
    assert band.min() == pytest.approx(statistics.mean(fell) - statistics.stdev(fell)), "a loss has its band below 0"


def test_files_are_written_with_a_line_for_what_is_not_drawn(tmp_path, capsys):
    root = write(tmp_path / "records", with_probes(done("ConViT", (10.0,))), done("Mimetic", (10.0,)))
    arguments = ["--results", str(root), "--out", str(tmp_path / "out"), "--figure"]
    assert curves.main([*arguments, "nonlocality"]) == 0
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "nonlocality-cifar10.pdf",
        "nonlocality-cifar10.png",
    }
    assert curves.main([*arguments, "impulse_mass"]) == 0
    said = capsys.readouterr().out
    assert "without probes, so in no figure of them: Mimetic (cifar10)" in said
    assert "not drawn: impulse_mass: no record holds probes of a target" in said


def test_records_without_probes_or_maps_say_so_once_for_each_reason(tmp_path, capsys):
    root = write(tmp_path / "records", done("Mimetic", (10.0,)))
    arguments = ["--results", str(root), "--out", str(tmp_path / "out")]
    assert curves.main(arguments) == 0
    first, *lines = capsys.readouterr().out.splitlines()
    assert first == f"Study small: 0 figures in {tmp_path / 'out'}"
    said = [line.removeprefix("  not drawn: ").partition(": ") for line in lines]
    why = {reason: names.split(", ") for names, _, reason in said}
    assert len(why) == len(said)
    assert why == {
        each.why_none: [e.name for e in CURVES.entries() if e.why_none == each.why_none] for each in CURVES.entries()
    }
    assert curves.main([*arguments, "--quiet"]) == 0
    assert capsys.readouterr().out == ""
    assert list((tmp_path / "out").iterdir()) == []
    write(root, done("Mimetic", (10.0,), study="other"))
    assert curves.main(arguments) == 0
    assert capsys.readouterr().out.splitlines() == [
        *(f"Study {name}: 0 figures in {tmp_path / 'out' / name}" for name in ("small", "other")),
        "What is not drawn, and why: --study NAME",
    ]
    assert curves.main([*arguments[:2], "--baseline", "Mimic"]) == 2
    assert "unknown baseline row 'Mimic'; did you mean 'Mimetic'" in capsys.readouterr().err
