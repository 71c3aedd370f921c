"""Figures: differences worked out by hand, what an axis is called, and files that are there and stable."""

from dataclasses import replace

import pandas as pd
import pytest
from synthetic_records import dense, done, laid_out, several, validated, with_metrics, write

from vitinit.analysis.figures import __main__ as figures
from vitinit.analysis.figures.registry import FIGURES
from vitinit.analysis.figures.style import digest, panels
from vitinit.analysis.frame import load
from vitinit.analysis.tables.registry import build


def gains(study, baseline=None):
    """The differences that are drawn, by column and label."""
    data = FIGURES.get("differences").figures(replace(study, baseline=baseline))["differences"].data
    return data.groupby(["column", "label"])["gain"].apply(list).to_dict()


def test_differences_are_by_seed_to_the_own_base_or_a_baseline_and_a_fall_of_an_error_is_a_gain(tmp_path):
    """In each column by its own metric, as what is bold there."""
    for dataset in ("digits", "cifar10"):
        tops = {
            "Trunc normal": (40.0, 41.0, 42.0),
            "Mimetic": (45.0, 48.0, 51.0),
            "Kaiming uniform": (39.0, 40.0, 41.0),
        }
        several(tmp_path, tops, dataset=dataset)
    study = load([tmp_path])
    base = {(column, "Trunc normal"): [1, 1, 1] for column in study.columns}  # over the first base
    assert gains(study) == {("cifar10", "Mimetic"): [6, 8, 10], ("digits", "Mimetic"): [6, 8, 10], **base}
    assert gains(study, "Trunc normal")["cifar10", "Mimetic"] == [5, 7, 9]
    runs = dict(study.contents.done)
    for run_id, run in study.contents.done.items():
        if run.spec.dataset.name == "digits":
            runs[run_id] = with_metrics(run, calibration_error=run.score).by("calibration_error")
    mixed = replace(study, contents=replace(study.contents, done=runs))
    assert gains(mixed) == gains(study) | {("digits", "Mimetic"): [-6, -8, -10], ("digits", "Trunc normal"): [-1] * 3}
    assert build(mixed).bold == {("Mimetic", ("CIFAR-10", "")), ("Kaiming uniform", ("digits", ""))}


def test_the_comparisons_that_a_grid_names_are_drawn_if_all_have_runs(tmp_path):
    several(tmp_path, {"ConViT": (60.0, 64.0), "Mimetic": (50.0, 51.0)})
    several(tmp_path, {"Kaiming uniform": (58.0, 60.0)}, label="DeiT")
    laid_out(tmp_path, contrasts=[("ConViT", "DeiT")])
    assert gains(load([tmp_path])) == {("cifar10", "ConViT − DeiT"): [2, 4]}
    laid_out(tmp_path, contrasts=[("ConViT", "DeiT"), ("Mimetic", "gone")])
    assert gains(load([tmp_path])) == {("cifar10", "Mimetic"): [-8, -9]}


def test_an_axis_names_the_split_and_the_metrics(tmp_path):
    def axis(*runs):
        grid = FIGURES.get("accuracy").figures(load([write(tmp_path / str(len(runs)), *runs)]))["accuracy"]
        return str(next(iter(grid.axes.values())).get_ylabel())

    tested, masks = done("Mimetic", study="masks"), dense("Mimetic", (40.0,))
    assert axis(validated(done("Mimetic"))) == "validation top-1 (%)"
    assert axis(tested, masks) == "test top-1 or mean IoU (%)"
    assert axis(tested, masks, validated(done("Kaiming uniform", study="masks"))) == "top-1 or mean IoU (%)"


def test_files_are_written_with_what_they_show_and_stable(tmp_path):
    root = write(tmp_path / "records", done("Mimetic", (10.0, 20.0), label="A $x^ [b] 初"))
    written = []
    for out in (tmp_path / "one", tmp_path / "two"):
        assert figures.main(f"--results {root} --out {out}".split()) == 0
        written.append({path.name: path.read_bytes() for path in out.iterdir()})
    assert written[0] == written[1]
    assert written[0].keys() == {f"accuracy.{end}" for end in ("pdf", "png", "csv")}
    assert pd.read_csv(tmp_path / "one/accuracy.csv")["score"].tolist() == [10, 20]


def test_a_picture_is_not_stale_for_the_last_bit_of_a_mean():
    """Means of numbers with five digits end in ties."""
    last, next_one, other = (digest(pd.DataFrame({"mean": [4.130365 + bit]})) for bit in (-8e-16, 8e-16, 1e-5))
    assert last == next_one != other


@pytest.mark.parametrize(("count", "across"), [(1, 1), (2, 2), (3, 3), (4, 2), (6, 3)])
def test_three_panels_stand_side_by_side_and_four_two_by_two(count, across):
    grid = panels(pd.DataFrame(), "abcdef"[:count], height=2.0)
    assert grid.axes["a"].get_subplotspec().get_gridspec().ncols == across
