"""Figures: what they draw, looked up in the drawn objects; files that are there and stable."""

from __future__ import annotations

import statistics

import matplotlib as mpl
import pytest
from synthetic_records import done, write

from analysis import figures
from analysis.frame import load

mpl.use("agg")

PEAK = [[0.02, 0.02, 0.02], [0.02, 0.6, 0.02], [0.02, 0.02, 0.02]]
FLAT = [[0.05] * 3] * 3


@pytest.fixture
def study(tmp_path):
    for seed in range(2):
        write(tmp_path, done("Mimetic", (10.0, 20.0 + 4 * seed), seed=seed, maps=[PEAK, FLAT]))
        write(tmp_path, done("Imp.-3", (30.0, 35.0), seed=seed, maps=[FLAT, PEAK, PEAK]))
    write(tmp_path, done("Mimetic", (50.0, 60.0), dataset="cifar100"))
    return load([tmp_path])


def test_accuracy_lines_are_means_in_the_row_colour(study):
    first, second, *_ = figures.accuracy(study).axes
    assert first.get_title() == "cifar10: n=2, 2 epochs"
    assert second.get_title() == "cifar100: n=1, 2 epochs"
    mimetic, impulse = first.get_lines()
    assert list(mimetic.get_ydata()) == [10.0, statistics.mean((20.0, 24.0))]
    assert list(impulse.get_ydata()) == [30.0, 35.0]
    assert mimetic.get_color() == second.get_lines()[0].get_color() == figures.style(study)["Mimetic"]["color"]
    assert mimetic.get_color() != impulse.get_color()
    band = first.collections[0].get_paths()[0].vertices[:, 1]
    assert band.max() == pytest.approx(22 + statistics.stdev((20.0, 24.0)))


def test_attention_maps_show_every_head_on_one_scale(study):
    drawn = [axes for axes in figures.attention_maps(study).axes if axes.get_images()]
    assert len(drawn) == 2 + 3
    assert [axes.get_ylabel() for axes in drawn] == ["Mimetic", "", "Imp.-3", "", ""]
    assert drawn[0].get_images()[0].get_array()[1][1] == 0.6
    assert len({axes.get_images()[0].get_clim() for axes in drawn}) == 1
    assert list(drawn[0].get_xticks()) == [-1, 0, 1]
    assert all(axes.patches[0].get_bbox().bounds == (-0.5, -0.5, 1, 1) for axes in drawn), "offset (0, 0) is marked"


def test_files_are_written_and_stable(tmp_path, capsys):
    root = write(tmp_path / "records", done("A $x^", (10.0,), label="A $x^ [b]", maps=[PEAK]))
    written = []
    for out in (tmp_path / "one", tmp_path / "two"):
        assert figures.main(["--results", str(root), "--out", str(out)]) == 0
        written.append({path.name: path.read_bytes() for path in out.iterdir()})
    assert written[0].keys() == {"accuracy.pdf", "accuracy.png", "attention_maps.pdf", "attention_maps.png"}
    assert written[0] == written[1]
    assert all(len(content) > 5000 for content in written[0].values())


def test_no_maps_is_said(tmp_path, capsys):
    root = write(tmp_path / "records", done("Mimetic", (10.0,)))
    assert figures.main(["--results", str(root), "--out", str(tmp_path / "out")]) == 0
    assert "attention_maps: not drawn" in capsys.readouterr().out
    assert not (tmp_path / "out" / "attention_maps.png").exists()
