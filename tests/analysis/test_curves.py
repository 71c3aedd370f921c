"""Curves of what happens inside a model: their files, labels and pairs of seeds, and what is said otherwise."""

from __future__ import annotations

import itertools
import statistics
from hashlib import sha256

import matplotlib as mpl
import matplotlib.pyplot as plt
import pytest
from figure_checks import drawn
from synthetic_records import done, several, with_probes, write

from vitinit.analysis.curves import __main__ as curves
from vitinit.analysis.curves.efficiency import sample_efficiency
from vitinit.analysis.curves.gating import gating
from vitinit.analysis.curves.layers import charts as layers_charts
from vitinit.analysis.curves.locality import charts as locality_charts
from vitinit.analysis.curves.locality import locality
from vitinit.analysis.curves.registry import CURVES
from vitinit.analysis.frame import load
from vitinit.analysis.plotting.style import looks

mpl.use("agg")


@pytest.fixture(autouse=True)
def close():
    yield
    plt.close("all")


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
