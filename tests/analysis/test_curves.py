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
from figure_checks import assert_readable
from synthetic_records import done, with_probes, write
from test_figures import drawn

from analysis.curves import __main__ as curves
from analysis.curves.efficiency import sample_efficiency
from analysis.curves.gating import gating
from analysis.curves.layers import QUANTITIES, over_epochs
from analysis.curves.layers import charts as layers_charts
from analysis.curves.locality import charts as locality_charts
from analysis.curves.locality import locality
from analysis.curves.registry import CURVES
from analysis.frame import load
from analysis.plotting.style import looks, set_defaults

mpl.use("agg")

SIDE, DEPTH, GPSA, EPOCHS = 8, 4, 3, [0, 1, 2]
"""Of the synthetic records."""
PLACES = list(itertools.product(range(SIDE), repeat=2))
UNIFORM = {
    "nonlocality": statistics.mean(math.dist(a, b) for a in PLACES for b in PLACES),
    "nonlocality_reference": statistics.mean(math.dist(a, b) for a in PLACES for b in PLACES),
    "attention_entropy": -sum(1 / 64 * math.log(1 / 64) for _ in PLACES),
    "effective_receptive_field": statistics.mean(math.dist(a, (4, 4)) for a in PLACES),
    "impulse_mass": 1 / 64,
}


@pytest.fixture(autouse=True)
def close():
    yield
    plt.close("all")


@pytest.fixture
def records(tmp_path):
    """Three rows of two seeds with probes on one dataset; on the other one row of one seed."""
    found = {
        (row, seed): with_probes(done(row, (30.0, 40.0), seed=seed), number)
        for number, (row, seed) in enumerate(itertools.product(("Mimetic", "Imp.-3", "ConViT"), (0, 1)))
    }
    other = with_probes(done("Mimetic", (30.0, 40.0), dataset="digits"), 9)
    write(tmp_path, *found.values(), other)
    return found


@pytest.fixture
def study(tmp_path, records):
    return load([tmp_path])


def of_layer(record, name, layer):
    """A quantity over epochs, mean over heads."""
    found = [getattr(probe, name)[layer] for probe in record.probes]
    return [statistics.mean(value) if isinstance(value, list) else value for value in found]


@pytest.mark.parametrize("name", QUANTITIES)
def test_a_line_a_layer_is_the_mean_over_heads_and_seeds(study, records, name):
    figures = over_epochs(study, name)
    has_target = name == "impulse_mass"
    assert list(figures) == [f"{name}-cifar10"] if has_target else [f"{name}-digits", f"{name}-cifar10"]
    panels = figures[f"{name}-cifar10"].axes
    rows = ["Imp.-3"] if has_target else ["Mimetic", "Imp.-3", "ConViT"]
    assert [axes.get_title() for axes in panels] == [f"{row}: n=2{' †' * (row == 'ConViT')}" for row in rows]
    assert ("† answers by its class token" in figures[f"{name}-cifar10"].get_suptitle()) == ("ConViT" in rows)
    assert len({axes.get_ylim() for axes in panels}) == 1, "shared axes"
    colours = set()
    for row, axes in zip(rows, panels, strict=True):
        *layers, uniform = drawn(axes)
        assert len(layers) == (2 if has_target else DEPTH)
        for layer, (x, y, colour, _) in enumerate(layers):
            first, second = (of_layer(records[row, seed], name, layer) for seed in (0, 1))
            assert x == EPOCHS
            assert y == pytest.approx([(a + b) / 2 for a, b in zip(first, second, strict=True)])
            upper = axes.collections[layer].get_paths()[0].vertices[:, 1].max()
            assert upper == pytest.approx(
                max((a + b) / 2 + abs(a - b) / 2**0.5 for a, b in zip(first, second, strict=True))
            )
            colours.add((layer, colour))
        assert uniform[1] == pytest.approx([UNIFORM[name]] * 2)
    assert len(colours) == len(layers), "a layer has its colour in every panel"


def test_a_long_label_loses_its_own_end_not_what_follows_it(tmp_path):
    row = "ConViT, ten gated layers of twelve, locality strength 1, " + "x" * 20
    write(tmp_path, *(with_probes(done("ConViT", (30.0, 40.0), seed=seed, label=row), seed) for seed in (0, 1)))
    study = load([tmp_path])
    (axes,) = over_epochs(study, "nonlocality")["nonlocality-cifar10"].axes
    assert axes.get_title().replace("\n", " ").startswith("ConViT, ten gated layers of twelve")
    assert axes.get_title().endswith("…: n=2 †")
    (figure,) = gating(study).values()
    assert figure.get_suptitle().replace("\n", " ").endswith(", cifar10, seed 0 (the first of 2)")


def test_layers_go_from_dark_to_light(study):
    axes = over_epochs(study, "nonlocality")["nonlocality-cifar10"].axes[0]
    light = [np.dot((0.2126, 0.7152, 0.0722), mpl.colors.to_rgb(colour)) for _, _, colour, _ in drawn(axes)[:-1]]
    assert light == sorted(light)
    assert light[-1] < 0.8, "seen on white"


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


def test_rows_that_a_name_cannot_tell_apart_have_files_of_their_own(tmp_path):
    labels = ("ConViT", "ConViT+", "x" * 300)
    write(tmp_path, *(with_probes(done("ConViT", (10.0, 20.0), label=label)) for label in labels[:1]))
    write(tmp_path, *(with_probes(done("ConViT", (10.0, 20.0), label=label, seed=7)) for label in labels[1:2]))
    write(tmp_path, *(with_probes(done("ConViT", (10.0, 20.0), label=label, seed=8)) for label in labels[2:]))
    long = f"{'x' * 71}-{sha256(b'x' * 300).hexdigest()[:8]}"
    assert list(gating(load([tmp_path]))) == [f"gating-cifar10-{part}" for part in ("ConViT", "ConViT-2", long)]


def test_heads_that_coincide_are_said_to(tmp_path):
    run = with_probes(done("ConViT", (10.0, 20.0)))
    same = [
        probe.model_copy(update={"gating": [[0.7] * 4, [0.7, 0.6, 0.7, 0.7], [0.5, 0.5, 0.515, 0.5]]})
        for probe in run.probes
    ]
    write(tmp_path, run.model_copy(update={"probes": same}))
    (figure,) = gating(load([tmp_path])).values()
    assert [axes.get_title() for axes in figure.axes] == [
        "layer 1\nheads coincide",
        "layer 2",
        "layer 3\nheads coincide",
    ]
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


def test_every_setting_over_locality_has_a_file_and_a_title_of_its_own(tmp_path):
    for epochs in (1, 2, 3):
        for strength in (1.0, 2.0):
            params = {"locality_strength": strength}
            write(tmp_path, done("ConViT", (10.0,) * epochs, label=f"ConViT {strength}", params=params))
    titles = {name: figure.get_suptitle().splitlines()[0] for name, figure in locality(load([tmp_path])).items()}
    assert len(titles) == len(set(titles.values())) == 3


def test_a_chart_over_settings_of_several_columns_is_named_after_their_dataset(tmp_path):
    """The number of GPSA layers of one row is set by blocks, so that each number has a column of its own."""
    params = {"locality_strength": 1.0}
    for layers, seed in itertools.product((1, 2), (0, 1)):
        write(tmp_path, done("ConViT", (40.0 + layers,), seed=seed, params=params, gpsa_layers=layers))
    study = load([tmp_path])
    assert len(study.columns) == 2
    ((name, chart),) = locality_charts(study).items()
    assert (name, chart.where) == ("locality-cifar10", "cifar10: n=2")
    assert {panel.column for panel in chart.panels} == {""}


def test_long_labels_that_differ_in_their_ends_only_have_files_of_their_own(tmp_path):
    long = f"folder:/data/{'images_of_the_laboratory/' * 5}"
    for name in ("cells", "tissue"):
        write(tmp_path, with_probes(done("Mimetic", dataset=f"{long}{name}")))
    assert len(layers_charts(load([tmp_path]), "nonlocality")) == 2


def test_settings_are_not_mixed_over_locality(tmp_path):
    """Other epochs at another strength: nothing is several values of one setting."""
    for strength, top1 in ((0.1, (30.0,)), (1.0, (30.0, 40.0))):
        write(tmp_path, done("ConViT", top1, label=f"ConViT {strength}", params={"locality_strength": strength}))
    assert locality(load([tmp_path])) == {}


def test_sample_efficiency_is_the_gain_by_seed_relative_to_the_baseline(tmp_path):
    ours = {(500, 0): 30.0, (500, 1): 33.0, (5000, 0): 50.0, (5000, 1): 61.0}
    for (size, seed), top1 in ours.items():
        write(tmp_path, done("Mimetic", (top1,), train_size=size, seed=seed))
        write(tmp_path, done("Trunc normal", (20.0 if size == 500 else 50.0,), train_size=size, seed=seed))
    write(tmp_path, done("Mimetic", (99.0,), train_size=500, seed=2))  # without a pair
    study = load([tmp_path])
    ((name, figure),) = sample_efficiency(study).items()
    assert name == "sample_efficiency-cifar10"
    accuracy, gain = figure.axes
    colour = looks(study)["Mimetic"].color
    assert next(line for line in drawn(accuracy) if line[2] == colour)[:2] == ([500, 5000], [54.0, 55.5])
    mimetic, zero = drawn(gain)
    assert mimetic[:3] == ([500, 5000], pytest.approx([(50 + 65) / 2, (0 + 22) / 2]), colour)
    assert zero[1] == [0, 0]
    assert gain.get_title() == "gain relative to Trunc normal: n=2"
    (other,) = sample_efficiency(study, "Mimetic").values()
    assert other.axes[1].get_title().startswith("gain relative to Mimetic: n=")


def test_text_can_be_read_in_print(study):
    with mpl.rc_context():
        set_defaults()
        for figure in (*over_epochs(study, "nonlocality").values(), *gating(study).values()):
            assert_readable(figure)


def test_files_are_written_and_stable_with_a_line_for_what_is_not_drawn(tmp_path, capsys):
    root = write(tmp_path / "records", with_probes(done("ConViT", (10.0,))), done("Mimetic", (10.0,)))
    written = []
    for out in (tmp_path / "one", tmp_path / "two"):
        assert curves.main(["--results", str(root), "--out", str(out), "--figure", "nonlocality"]) == 0
        written.append({path.name: path.read_bytes() for path in out.iterdir()})
    assert written[0].keys() == {"nonlocality-cifar10.pdf", "nonlocality-cifar10.png"}
    assert written[0] == written[1]
    assert curves.main(["--results", str(root), "--out", str(tmp_path), "--figure", "impulse_mass"]) == 0
    said = capsys.readouterr().out
    assert "without probes, so in no figure of them: Mimetic (cifar10)" in said
    assert "not drawn: impulse_mass: no record holds probes of a target" in said


def test_records_without_probes_or_maps_say_so_once_for_each_reason(tmp_path, capsys):
    root = write(tmp_path / "records", done("Mimetic", (10.0,)))
    assert curves.main(["--results", str(root), "--out", str(tmp_path / "out")]) == 0
    first, *lines = capsys.readouterr().out.splitlines()
    assert first == f"Study small: 0 figures in {tmp_path / 'out'}"
    why = {}
    for line in lines:
        names, _, reason = line.removeprefix("  not drawn: ").partition(": ")
        assert reason not in why
        why[reason] = names.split(", ")
    assert why == {
        each.why_none: [e.name for e in CURVES.entries() if e.why_none == each.why_none] for each in CURVES.entries()
    }
    assert curves.main(["--results", str(root), "--out", str(tmp_path / "out"), "--quiet"]) == 0
    assert capsys.readouterr().out == ""
    assert list((tmp_path / "out").iterdir()) == []
    write(root, done("Mimetic", (10.0,), study="other"))
    assert curves.main(["--results", str(root), "--out", str(tmp_path / "out")]) == 0
    assert capsys.readouterr().out.splitlines() == [
        *(f"Study {name}: 0 figures in {tmp_path / 'out' / name}" for name in ("small", "other")),
        "What is not drawn, and why: --study NAME",
    ]
    assert curves.main(["--results", str(root), "--baseline", "Mimic"]) == 2
    assert "unknown baseline row 'Mimic'; did you mean 'Mimetic'" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["nonlocality_reference", "impulse_mass"])
def test_a_title_names_its_dataset_whole(tmp_path, name):
    write(tmp_path, with_probes(done("Imp.-3", (30.0, 40.0), train_size=10_000), 1))
    (figure,) = over_epochs(load([tmp_path]), name).values()
    assert ", cifar10[10000] " in f"{' '.join(figure.get_suptitle().split())} "
