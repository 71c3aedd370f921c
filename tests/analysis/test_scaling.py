"""Gains over a numeric axis, by hand."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from synthetic_records import finished, spec, write

from vitinit.analysis.figures.scaling import figure, over
from vitinit.analysis.frame import Study, load
from vitinit.analysis.tables.registry import build, names
from vitinit.analysis.tables.scaling import catches_up, scaling, scaling_over
from vitinit.benchmark.spec import OptimizerSpec
from vitinit.initializers.errors import VitinitError

WIDTHS = (48, 96, 192)
BASE = {48: (40.0, 41.0, 42.0), 96: (44.0, 45.0, 46.0), 192: (48.0, 49.0, 50.0)}
GAIN = {48: (6.0, 7.0, 8.0), 96: (4.0, 4.5, 5.0), 192: (3.0, 2.0, 1.0)}
"""By width and seed; mimetic's over the base. Trunc normal is a point lower than the base."""


@pytest.fixture
def study(tmp_path: Path) -> Study:
    for width in WIDTHS:
        for seed in range(3):
            base, gain = BASE[width][seed], GAIN[width][seed]
            for row, top1 in (("Kaiming uniform", base), ("Trunc normal", base - 1), ("Mimetic", base + gain)):
                run = spec(row, seed=seed, epochs=1, width=width)
                write(tmp_path, finished(run, [top1], study="wide", row=f"{row}, width {width}"))
    return load([tmp_path], "wide")


def test_gains_and_their_slope_are_those_computed_by_hand(study: Study) -> None:
    table = build(study, "wide_scaling")
    assert table.rows == ["Kaiming uniform", "Mimetic", "Trunc normal"]
    assert table.columns == ["width 48", "width 96", "width 192", "gain per doubling"]
    for width in WIDTHS:
        cell = table.cells["Mimetic", f"width {width}"]
        assert cell.ours
        assert cell.against
        assert cell.ours.mean == pytest.approx(sum(BASE[width]) / 3 + sum(GAIN[width]) / 3)
        assert cell.against.mean == pytest.approx(sum(GAIN[width]) / 3)
        lower = table.cells["Trunc normal", f"width {width}"].against
        assert lower
        assert lower.mean == pytest.approx(-1), "a base is compared with the first base"
    # over three widths, each twice the one before, a least-squares slope is (last - first) / 2
    slope = table.cells["Mimetic", "gain per doubling"].against
    assert slope
    assert slope.mean == pytest.approx(((3 - 6) + (2 - 7) + (1 - 8)) / 2 / 3)
    assert table.cells["Kaiming uniform", "gain per doubling"].against is None


def test_the_figure_shows_these_gains(study: Study) -> None:
    (axes,) = figure(study)["scaling"].axes
    drawn = {tuple(round(float(y), 6) for y in line.get_ydata()) for line in axes.get_lines()}
    assert {tuple(sum(GAIN[width]) / 3 for width in WIDTHS), (-1.0, -1.0, -1.0)} <= drawn
    assert {text.get_text() for text in axes.figure.legends[0].get_texts()} == {
        "Trunc normal − Kaiming uniform",
        "Mimetic − Kaiming uniform",
    }


def test_a_gain_is_of_the_seeds_that_both_have(tmp_path: Path, study: Study) -> None:
    lost = ("Kaiming uniform, width 48", 2)
    write(tmp_path / "fewer", *(run for run in study.contents.done.values() if (run.row, run.spec.seed) != lost))
    found = scaling(load([tmp_path / "fewer"], "wide"))
    assert found
    gains = found.gains(found.series["cifar10", "Mimetic"])
    assert {width: gain.to_list() for width, gain in gains.items()} == {
        48: pytest.approx(GAIN[48][:2]),
        96: pytest.approx(GAIN[96]),
        192: pytest.approx(GAIN[192]),
    }


def test_two_widths_or_another_setting_beside_them_are_no_axis(tmp_path: Path, study: Study) -> None:
    two = [run for run in study.contents.done.values() if run.spec.model.width != 192]
    write(tmp_path / "two", *two)
    assert "wide_scaling" not in names(load([tmp_path / "two"], "wide"))
    other = [
        finished(
            spec("Kaiming uniform", epochs=2, width=width), [30.0, 30.0], study="wide", row=f"2 epochs, width {width}"
        )
        for width in WIDTHS
    ]
    write(tmp_path / "mixed", *study.contents.done.values(), *other)
    mixed = load([tmp_path / "mixed"], "wide")
    assert "wide_scaling" not in names(mixed), "a width of the base stands for two settings"


def test_where_a_base_catches_up_is_interpolated_over_the_logarithm() -> None:
    base = {5.0: 40.0, 20.0: 50.0, 80.0: 54.0}
    assert catches_up(45.0, base) == pytest.approx(10.0)
    assert catches_up(54.0, base) == pytest.approx(80.0)
    assert catches_up(39.0, base) == 5.0
    assert catches_up(54.1, base) is None


def test_score_and_gain_over_a_swept_field_are_those_computed_by_hand(tmp_path: Path) -> None:
    scores = {0.1: (50.0, 52.0), 0.3: (60.0, 61.0)}
    for lr, by_seed in scores.items():
        for width in (48, 96):
            for seed, base in enumerate(by_seed):
                for row, gain in (("Kaiming uniform", 0.0), ("Mimetic", 10 * lr)):
                    run = spec(row, seed=seed, epochs=1, width=width)
                    run = run.model_copy(update={"recipe": run.recipe.model_copy(update={"lr": lr})})
                    write(tmp_path, finished(run, [base + gain + width / 48], study="swept", row=row))
    study = load([tmp_path], "swept")
    found = scaling_over(study, "lr")
    assert {place for place, _ in found.series} == {f"{study.contents.done.popitem()[1].spec.dataset.label} (width {w})"
                                                    for w in (48, 96)}  # fmt: skip
    for (place, label), curve in found.series.items():
        extra = 1 if "width 48" in place else 2
        means = {
            lr: sum(by_seed) / 2 + extra + (10 * lr if label == "Mimetic" else 0) for lr, by_seed in scores.items()
        }
        assert {value: float(its.mean()) for value, its in curve.scores.items()} == pytest.approx(means)
        gains = {value: float(its.mean()) for value, its in found.gains(curve).items()}
        assert gains == pytest.approx({0.1: 1.0, 0.3: 3.0} if label == "Mimetic" else {})
    assert set(over(study, "lr")) == {"over-lr", "over-lr-gain"}
    assert set(scaling_over(study, "width").values) == {48, 96}
    with pytest.raises(VitinitError, match="fields with several: images, lr, width"):
        scaling_over(study, "epochs")


def test_a_parameter_of_optimizers_is_an_axis_for_each_of_them(tmp_path: Path) -> None:
    for name, score in (("sgd", 40.0), ("muon", 60.0)):
        for momentum in (0.5, 0.9):
            run = spec("Mimetic", seed=0, epochs=1)
            optimizer = OptimizerSpec(name=name, params={"momentum": momentum, "nesterov": name == "muon"})
            run = run.model_copy(update={"recipe": run.recipe.model_copy(update={"optimizer": optimizer})})
            write(tmp_path, finished(run, [score + momentum * 10], study="nested", row="Mimetic"))
    curves = scaling_over(load([tmp_path], "nested"), "optimizer.momentum").series
    assert {place: {value: float(its.mean()) for value, its in curve.scores.items()} for (place, _), curve in
            curves.items()} == {"cifar10 (optimizer sgd)": {0.5: 45.0, 0.9: 49.0},
                                "cifar10 (optimizer muon)": {0.5: 65.0, 0.9: 69.0}}  # fmt: skip


def test_over_a_parameter_of_a_method_the_base_stays_as_it_is(tmp_path: Path) -> None:
    for seed in range(2):
        write(tmp_path, finished(spec("Kaiming uniform", seed=seed, epochs=1), [40.0 + seed], study="beta",
                                 row="Kaiming uniform"))  # fmt: skip
        for beta in (0.25, 0.5):
            run = spec("Mimetic", seed=seed, epochs=1, params={"beta_qk": beta})
            write(tmp_path, finished(run, [40.0 + 3 * seed + 8 * beta], study="beta", row=f"Mimetic, beta_qk {beta}"))
    study = load([tmp_path], "beta")
    for name in ("beta_qk", "method.beta_qk"):
        found = scaling_over(study, name)
        assert [label for _, label in found.series] == ["Mimetic", "Kaiming uniform"]
        gains = found.gains(found.series["cifar10", "Mimetic"])
        assert {value: its.tolist() for value, its in gains.items()} == {0.25: [2.0, 4.0], 0.5: [4.0, 6.0]}
    assert set(over(study, "beta_qk")) == {"over-beta_qk", "over-beta_qk-gain"}


def test_a_value_of_0_has_its_place_on_the_axis(tmp_path: Path) -> None:
    for seed, beta in itertools.product(range(2), (0.0, 0.5)):
        run = spec("Mimetic", seed=seed, epochs=1, params={"beta_qk": beta})
        write(tmp_path, finished(run, [40.0 + seed], study="beta", row=f"Mimetic, beta_qk {beta}"))
    (axes,) = over(load([tmp_path], "beta"), "beta_qk")["over-beta_qk"].axes
    assert axes.get_xscale() == "linear"
    assert list(axes.get_xticks()) == [0.0, 0.5]
