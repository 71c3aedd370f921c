"""Gains over a numeric axis, by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
from synthetic_records import finished, spec, write

from vitinit.analysis.figures.scaling import gains_over_axis
from vitinit.analysis.frame import Study, load
from vitinit.analysis.tables.registry import build, names
from vitinit.analysis.tables.scaling import catches_up, scaling

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
    data = gains_over_axis(study)["scaling"].data
    assert set(data["row"]) == {"Trunc normal − Kaiming uniform", "Mimetic − Kaiming uniform"}
    means = data[data["row"].str.startswith("Mimetic")].groupby("x")["value"].mean()
    assert means.to_dict() == pytest.approx({width: sum(GAIN[width]) / 3 for width in WIDTHS})


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
