"""Figures and curves: what they draw, read from the data of their grids; files that are there and stable."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
import pytest
from synthetic_records import done, of_dataset, several, with_error, with_probes, write

from vitinit.analysis.curves import __main__ as curves
from vitinit.analysis.curves.registry import CURVES
from vitinit.analysis.figures import __main__ as figures
from vitinit.analysis.figures.registry import FIGURES
from vitinit.analysis.figures.style import panels, set_defaults
from vitinit.analysis.frame import Study, load
from vitinit.benchmark.records.store import Layout, Store

PEAK = [[0.02, 0.02, 0.02], [0.02, 0.6, 0.02], [0.02, 0.02, 0.02]]


@pytest.fixture(autouse=True)
def _style() -> Any:
    with plt.rc_context():
        set_defaults()
        yield
    plt.close("all")


@pytest.fixture
def compared(tmp_path: Path) -> Study:
    """Three seeds on one dataset, two on the other."""
    for dataset, n in (("digits", 3), ("cifar10", 2)):
        starts = {"Trunc normal": (40.0, 1), "Mimetic": (45.0, 3), "Kaiming uniform": (39.0, 1)}
        values = {row: [start + step * seed for seed in range(n)] for row, (start, step) in starts.items()}
        several(tmp_path, values, dataset=dataset)
    return load([tmp_path])


def drawn(name: str, study: Study, baseline: str | None = None, file: str = "") -> pd.DataFrame:
    """The data of a figure or curve."""
    drawings = CURVES if name in CURVES.by_name() else FIGURES
    return drawings.get(name).figures(study, baseline)[file or name].data


def of(data: pd.DataFrame, **fields: Any) -> pd.DataFrame:
    """The lines of a frame that have these values."""
    for name, value in fields.items():
        data = data[data[name] == value]
    return data


def test_differences_are_by_seed_to_the_own_base_or_to_the_baseline(compared: Study) -> None:
    own = drawn("differences", compared)
    assert of(own, label="Mimetic", column="digits")["gain"].tolist() == [6, 8, 10]
    assert set(own["label"]) == {"Mimetic", "Trunc normal"}, "a base is compared with the first base"
    asked = drawn("differences", compared, "Trunc normal")
    assert of(asked, label="Mimetic", column="cifar10")["gain"].tolist() == [5, 7]


def test_a_fall_of_an_error_is_a_gain(compared: Study) -> None:
    for run in compared.contents.done.values():
        write(compared.folders[0], with_error(run, run.score))
    study = load(compared.folders).by("calibration_error")
    assert of(drawn("differences", study), label="Mimetic", column="cifar10")["gain"].max() < 0


def test_the_comparisons_that_a_grid_names_are_drawn_if_all_have_runs(tmp_path: Path) -> None:
    for row, top1 in {"ConViT": (60.0, 64.0), "DeiT": (58.0, 60.0), "Mimetic": (50.0, 51.0)}.items():
        several(tmp_path, {"Kaiming uniform" if row == "DeiT" else row: top1}, label=row)
    Store(tmp_path).write_layout("small", Layout(contrasts=[("ConViT", "DeiT")]))
    assert drawn("differences", load([tmp_path]))["gain"].tolist() == [2, 4]
    Store(tmp_path).write_layout("small", Layout(contrasts=[("ConViT", "DeiT"), ("Mimetic", "gone")]))
    assert set(drawn("differences", load([tmp_path]))["label"]) == {"Mimetic"}


def test_a_placebo_stands_in_the_line_of_its_method_and_the_largest_gain_is_first(tmp_path: Path) -> None:
    top1 = {
        "Kaiming uniform": (30.0, 30.0),
        "Imp.-3": (38.0, 38.0),
        "Mimetic": (36.0, 37.0),
        "Placebo of Mimetic": (31.0, 31.0),
    }
    grid = FIGURES.get("forest").figures(load([several(tmp_path, top1)]))["forest"]
    assert of(grid.data, row="Placebo of Mimetic")["label"].tolist() == ["Mimetic"] * 2
    assert [text.get_text() for text in grid.axes.flat[0].get_yticklabels()] == ["Imp.-3", "Mimetic"]


def test_scores_over_epochs_are_those_of_the_records_and_validation_is_called_so(tmp_path: Path) -> None:
    write(tmp_path, done("Mimetic", (10.0, 20.0)), done("Kaiming uniform", (5.0, 8.0)))
    grid = FIGURES.get("accuracy").figures(load([tmp_path]))["accuracy"]
    assert of(grid.data, row="Mimetic")[["epoch", "score"]].to_numpy().tolist() == [[1, 10], [2, 20]]
    assert grid.axes.flat[0].get_ylabel() == "test top-1 (%)"
    write(tmp_path / "val", of_dataset(done("Mimetic"), val_size=2000, evaluate_on="val"))
    grid = FIGURES.get("accuracy").figures(load([tmp_path / "val"]))["accuracy"]
    assert grid.axes.flat[0].get_ylabel() == "validation top-1 (%)"
    grid = FIGURES.get("accuracy").figures(load([tmp_path, tmp_path / "val"]))["accuracy"]
    assert grid.axes.flat[0].get_ylabel() == "top-1 (%)", "of both"
    layouts = {number: panels(number, 1.0)["col_wrap"] for number in (2, 3, 4, 5)}
    assert (layouts, panels(4, 1.0, 4)["col_wrap"]) == ({2: 2, 3: 3, 4: 2, 5: 3}, 4)


def test_scores_and_relative_gains_over_training_images(tmp_path: Path) -> None:
    several(tmp_path, {"Mimetic": (30.0, 33.0, 99.0), "Trunc normal": (20.0, 20.0)}, train_size=500)
    several(tmp_path, {"Mimetic": (30.0, 30.0), "Trunc normal": (0.0, 20.0)}, train_size=1000)
    study = load([tmp_path])
    data = drawn("sample_efficiency", study, file="sample_efficiency-cifar10")
    assert of(data, column="test top-1 (%)", row="Mimetic", x=500)["value"].tolist() == [30, 33, 99]
    gains = of(data, column="gain relative to the base (%)", row="Mimetic")
    assert gains[["x", "value"]].to_numpy().tolist() == [[500, pytest.approx(50)], [500, pytest.approx(65)], [1000, 50]]


def test_probes_are_means_over_heads_and_gates_those_of_the_first_seed(tmp_path: Path) -> None:
    records = [with_probes(done("ConViT", (10.0, 20.0), seed=seed)) for seed in (1, 2)]
    study = load([write(tmp_path, *records)])
    last = records[0].probes[-1]
    data = drawn("nonlocality", study, file="nonlocality-cifar10")
    heads = last.nonlocality[0]
    assert of(data, layer=1, seed=1, epoch=last.epoch)["value"].tolist() == [pytest.approx(sum(heads) / len(heads))]
    gates = drawn("gating", study, file="gating-cifar10-ConViT")
    assert set(gates["seed"]) == {1}
    assert of(gates, epoch=0, layer=1)["value"].tolist() == records[0].probes[0].gating[0]


def test_attention_by_offset_is_that_of_the_first_seed(tmp_path: Path) -> None:
    write(tmp_path, done("Mimetic", seed=1, maps=[PEAK]), done("Mimetic", seed=2, maps=[[[0.05] * 3] * 3]))
    assert of(drawn("attention_offsets", load([tmp_path])), down=0, across=0)["attention"].tolist() == [0.6]


def test_files_are_written_with_what_they_show_and_stable(tmp_path: Path) -> None:
    root = write(tmp_path / "records", done("Mimetic", (10.0, 20.0), label="A $x^ [b] 初", maps=[PEAK]))
    written = []
    for out in (tmp_path / "one", tmp_path / "two"):
        assert figures.main(["--results", str(root), "--out", str(out)]) == 0
        written.append({path.name: path.read_bytes() for path in out.iterdir()})
    assert written[0] == written[1]
    assert {f"accuracy.{end}" for end in ("pdf", "png", "csv")} <= written[0].keys()
    assert pd.read_csv(tmp_path / "one/accuracy.csv")["score"].tolist() == [10, 20]


def test_what_cannot_be_drawn_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--results", str(write(tmp_path / "records", done("Mimetic", (10.0,)))), "--out", str(tmp_path)]
    assert curves.main([*arguments, "--figure", "impulse_mass"]) == 0
    assert "not drawn: impulse_mass: no record holds such probes" in capsys.readouterr().out
