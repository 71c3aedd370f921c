"""Figures: what they draw, looked up in the drawn objects; files that are there and stable."""

from __future__ import annotations

import itertools
import statistics

import matplotlib as mpl
import pytest
from contract_studies import REFERENCE
from figure_checks import drawn
from synthetic_records import KAIMING, MIMETIC, ROWS, TRUNC, VALIDATION, done, of_dataset, several, write

from vitinit.analysis.curves.efficiency import over_train_size
from vitinit.analysis.figures import __main__ as figures
from vitinit.analysis.figures.accuracy import accuracy
from vitinit.analysis.figures.cost import cost
from vitinit.analysis.figures.differences import differences
from vitinit.analysis.figures.forest import forest, placebos
from vitinit.analysis.figures.offsets import offsets
from vitinit.analysis.figures.train_size import several_sizes, train_size
from vitinit.analysis.frame import load, load_all
from vitinit.analysis.plotting.style import looks
from vitinit.benchmark.records.store import Layout, Store

mpl.use("agg")

PEAK = [[0.02, 0.02, 0.02], [0.02, 0.6, 0.02], [0.02, 0.02, 0.02]]
FLAT = [[0.05] * 3] * 3
T_OF_3 = 4.302653
"""The 97.5 % point of Student's t with two degrees of freedom, from a printed table."""


@pytest.fixture
def study(tmp_path):
    for seed in range(2):
        write(tmp_path, done("Mimetic", (10.0, 20.0 + 4 * seed), seed=seed, maps=[PEAK, FLAT]))
        write(tmp_path, done("Imp.-3", (30.0, 35.0), seed=seed, maps=[FLAT, PEAK, PEAK]))
    write(tmp_path, done("Mimetic", (50.0, 60.0), dataset="cifar100"))
    return load([tmp_path])


@pytest.fixture
def compared(tmp_path):
    """Three seeds on one dataset, two on the other."""
    for dataset, n in (("digits", 3), ("cifar10", 2)):
        starts = {"Trunc normal": (40.0, 1), "Mimetic": (45.0, 3), "Kaiming uniform": (39.0, 1)}
        values = {row: [start + step * seed for seed in range(n)] for row, (start, step) in starts.items()}
        several(tmp_path, values, dataset=dataset)
    return load([tmp_path])


def ticks(axes):
    return [label.get_text() for label in axes.get_yticklabels()]


def points(axes):
    """Where single points lie."""
    return [line[:2] for line in drawn(axes) if len(line[0]) == 1]


def test_validation_images_are_never_called_test_images(tmp_path):
    for row, seed in itertools.product(("Kaiming uniform", "Mimetic"), (0, 1)):
        write(tmp_path, of_dataset(done(row, seed=seed), **VALIDATION))
    study = load([tmp_path])
    for name, drawing in {"accuracy": accuracy, "differences": differences, "cost": cost}.items():
        said = [text.get_text().lower() for text in drawing(study)[name].findobj(mpl.text.Text)]
        assert any("validation top-1" in text for text in said)
        assert not any("test top-1" in text for text in said)


def test_accuracy_over_train_size(tmp_path, study):
    assert train_size(study) == {}, "one size per dataset"
    for size, top1 in ((None, 90.0), (500, 50.0), (5000, 70.0)):
        several(tmp_path, {"Mimetic": (top1, top1 + 1)}, dataset="svhn", train_size=size)
    (axes,) = train_size(load([tmp_path]))["train_size"].axes
    assert axes.get_title() == "svhn: n=2, 1 epoch"
    ((images, means, *look),) = drawn(axes)
    assert (images, means) == ([500, 5000, 73257], pytest.approx([50.5, 70.5, 90.5], abs=1e-3)), "whole test images"
    assert look == [looks(study)["Mimetic"].color, "^"]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["500", "5,000", "73,257"]


def test_images_drawn_anew_and_validation_have_panels_of_their_own(tmp_path):
    for size in (500, 5000):
        for plus, dataset in enumerate([{}, {"train_draw": "seed"}, VALIDATION]):
            for row in ("Kaiming uniform", "Mimetic"):
                record = done(row, (50.0 + plus + size / 1000 + 10 * (row == "Mimetic"),), train_size=size)
                write(tmp_path, of_dataset(record, **dataset))
    study = load([tmp_path])
    names = ["cifar10", "cifar10[redrawn]", "cifar10[val 2000], validation"]
    assert sorted(several_sizes(study)) == names
    charts = over_train_size(study)
    assert sorted(chart.where for chart in charts.values()) == names
    gains = {chart.where: chart.panels[1].lines["Mimetic"] for chart in charts.values()}
    assert [gains[name].n.tolist() for name in names] == [[1, 1]] * 3
    assert gains["cifar10"].mean == pytest.approx([100 * 10 / 50.5, 100 * 10 / 55])


def test_differences_are_paired_by_seed_with_intervals_from_three_pairs_on(compared):
    digits, cifar = differences(compared, "Trunc normal")["differences"].axes
    assert ticks(digits) == ["Kaiming uniform", "Mimetic"]
    assert digits.yaxis_inverted()
    kaiming, mimetic = looks(compared)["Kaiming uniform"], looks(compared)["Mimetic"]
    half = T_OF_3 * statistics.stdev((5.0, 7.0, 9.0)) / 3**0.5
    *_, seeds, interval, mean, zero = drawn(digits)
    assert seeds == ([5.0, 7.0, 9.0], [1.3] * 3, mimetic.color, ".")
    assert mean == ([7.0], [1], mimetic.color, mimetic.marker)
    assert interval[0] == pytest.approx([7 - half, 7 + half], abs=1e-4)
    assert zero[0] == [0, 0]
    assert [line[:3] for line in drawn(cifar)[:-1]] == [
        ([-1.0, -1.0], [0.3, 0.3], kaiming.color),
        ([-1.0], [0], kaiming.color),
        ([5.0, 7.0], [1.3, 1.3], mimetic.color),
        ([6.0], [1], mimetic.color),
    ], "no interval under three pairs"
    assert digits.get_xlim() == cifar.get_xlim(), "one scale: gains on two datasets can be compared"


def test_each_method_is_compared_with_its_own_base(compared):
    (figure,) = differences(compared).values()
    digits, _ = figure.axes
    assert ticks(digits) == ["Mimetic"]
    seeds, _, mean, _ = drawn(digits)
    assert (seeds[0], mean[0]) == ([6.0, 8.0, 10.0], [8.0])
    assert figure.get_suptitle() == "Test top-1 minus that of the own base"
    assert [points(axes) for axes in cost(compared)["cost"].axes[:2]] == [[([500.0], [0])], [([8.0], [0])]]


def test_the_comparisons_that_a_grid_names_are_drawn(tmp_path):
    """Also those of rows that have no own base, and of no others."""
    found = {"ConViT": (60.0, 64.0, 67.0), "DeiT": (58.0, 60.0, 62.0), "Mimetic": (50.0, 51.0, 52.0)}
    for row, top1 in found.items():
        several(tmp_path, {"Kaiming uniform" if row == "DeiT" else row: top1}, label=row)
    Store(tmp_path).write_layout("small", Layout(rows=list(found), contrasts=[("ConViT", "DeiT")]))
    study = load([tmp_path])
    (axes,) = differences(study)["differences"].axes
    assert ticks(axes) == ["ConViT − DeiT"]
    seeds, _, mean, _ = drawn(axes)
    assert seeds == ([2.0, 4.0, 5.0], [0.3] * 3, looks(study)["ConViT"].color, ".")
    assert mean[0] == [pytest.approx(11 / 3)]
    (axes,) = differences(study, "Mimetic")["differences"].axes
    assert ticks(axes) == ["ConViT", "DeiT"], "as asked for"


def test_cost_is_milliseconds_and_their_spread_beside_the_difference(compared):
    compared.runs.loc[compared.runs["row"] == "Mimetic", "init_seconds"] = [1.0, 2.0, 6.0, 0.0, 0.0]
    took, gained, took_cifar, _ = cost(compared, "Trunc normal")["cost"].axes
    assert took.get_xscale() == "log"
    assert took.get_xlabel() == "initialisation (ms, log scale)"
    assert gained.get_xlabel() == "gain in test top-1 (points)"
    assert ticks(took) == ["Kaiming uniform", "Mimetic"]
    assert points(took) == [([500.0], [0]), ([3000.0], [1])]
    assert ([1000.0, 6000.0], [1, 1]) in [line[:2] for line in drawn(took)], "the fastest and the slowest seed"
    assert points(gained) == [([-1.0], [0]), ([7.0], [1])]
    assert ([0.1], [1]) in points(took_cifar), "a logarithmic scale has no 0"
    look = looks(compared)["Mimetic"]
    (point,) = [line for line in took.lines if (line.get_color(), line.get_marker()) == (look.color, look.marker)]
    assert point.get_markerfacecolor() == look.color


def test_attention_by_offset_shows_every_head_on_one_scale(study):
    axes = offsets(study)["attention_offsets"].axes[0]
    shown = axes.get_images()
    assert len(shown) == 2 + 3
    assert [text.get_text() for text in axes.texts] == ["Mimetic", "Imp.-3", "head 1", "head 2", "head 3"]
    assert shown[0].get_array()[1][1] == 0.6
    assert len({image.get_clim() for image in shown}) == 1
    assert ticks(axes) == ["−1", "0", "1"] * 2
    middles = [((left + right) / 2, (low + high) / 2) for left, right, low, high in (i.get_extent() for i in shown)]
    assert len({y for _, y in middles}) == 2, "a line per row"
    squares = (patch.get_bbox() for patch in axes.patches)
    found = {(round(each.x0 + each.x1, 9), round(each.y0 + each.y1, 9), round(each.width, 9)) for each in squares}
    assert found == {(round(2 * x, 9), round(2 * y, 9), round(1 / 3, 9)) for x, y in middles}


def test_attention_by_offset_is_that_of_the_first_seed(tmp_path):
    first, second = (done("Mimetic", seed=seed, maps=[each]) for seed, each in ((1, PEAK), (2, FLAT)))
    assert first.run_id > second.run_id, "files are read in the order of these"
    write(tmp_path, first, second)
    (shown,) = offsets(load([tmp_path]))["attention_offsets"].axes[0].get_images()
    assert shown.get_array()[1][1] == 0.6


# --- how a row looks ---


def seen(look):
    """What tells one row from another."""
    return look.color, look.marker, look.linestyle, look.filled


@pytest.mark.long
def test_a_row_looks_the_same_in_every_study_and_whichever_rows_are_there(tmp_path):
    order = ["Kaiming uniform", "A plug-in's", "Mimetic", "Another's"]
    known = []
    for number, some in enumerate((order, order[1:], order[2:])):
        root = tmp_path / str(number)
        for row in some:
            method = {"alpha_qk": 0.1 * order.index(row)} if "'s" in row else None
            write(root, done("Mimetic" if method else row, (10.0,), label=row, params=method))
        Store(root).write_layout("small", Layout(rows=order))
        known.append({row: seen(look) for row, look in looks(load([root])).items()})
    assert all(fewer.items() <= known[0].items() for fewer in known)
    every: dict[str, object] = {}
    for study in load_all([REFERENCE]):
        its = looks(study)
        assert list(its) == study.rows
        assert len({seen(look) for look in its.values()}) == len(its), f"rows of {study.name} are told apart"
        if study.name in ("small", "long-range-small", "table2-small"):
            for row, look in its.items():
                assert every.setdefault(row, seen(look)) == seen(look), f"{row} in {study.name}"


def test_a_method_has_one_colour_and_marker_over_all_bases_and_the_base_shows():
    known = looks(load([REFERENCE], "table2-small"))
    methods = [row for row in known if f"Trunc normal + {row}" in known]
    assert len(methods) == 4
    for row in methods:
        ours, other = known[row], known[f"Trunc normal + {row}"]
        assert (ours.color, ours.marker) == (other.color, other.marker)
        assert ours.linestyle != other.linestyle
        assert (ours.filled, other.filled) == (True, False)
    assert known["Trunc normal"].linestyle == known["Trunc normal + Mimetic"].linestyle
    assert known["Trunc normal"].color == known["Kaiming uniform"].color == "#000000"


# --- the forest plot ---


def placebo(keep: str, base=KAIMING, **of):
    params = {"of": {"name": "mimetic", **MIMETIC, **of}, "keep": keep}
    return {"base": base, "method": {"name": "placebo", "params": params}}


@pytest.fixture
def with_placebos(tmp_path, monkeypatch):
    """Three seeds of a base, two methods, and five placebos: two of one, one of the other, two of what is not there."""
    top1 = {"Kaiming uniform": 30, "Imp.-3": 38, "Mimetic": 36}
    impulse = {"of": {"name": "impulse", **ROWS["Imp.-3"]["method"]["params"]}, "keep": "entropy"}
    for row, rest, gained in (
        ("rotated", placebo("spectrum"), 33),
        ("as spread out", placebo("entropy"), 39),
        ("of impulse", {"base": KAIMING, "method": {"name": "placebo", "params": impulse}}, 37),
        ("of another", placebo("spectrum", alpha_qk=0.6), 44),
        ("over another base", placebo("spectrum", base=TRUNC), 10),
    ):
        monkeypatch.setitem(ROWS, row, rest)
        top1[row] = gained
    return load([several(tmp_path, {row: (value, value, value + 2) for row, value in top1.items()})])


def marks(axes):
    """Where the estimates stand, by their marker, from the top."""
    lines = [line for line in axes.lines if len(line.get_xdata()) == 1]
    return [(line.get_marker(), line.get_xdata()[0], line.get_ydata()[0]) for line in lines]


def test_the_largest_gain_is_first_and_a_placebo_stands_below_its_own_method(with_placebos):
    (figure,) = forest(with_placebos).values()
    (axes,) = figure.axes
    assert ticks(axes) == ["of another", "Imp.-3", "Mimetic"], "what is no placebo of a row here has a line of its own"
    assert axes.yaxis_inverted()
    below = [("o", 8.0, 1), ("D", 7.0, 1.3), ("o", 6.0, 2), ("s", 3.0, 2.3), ("D", 9.0, 2.6)]
    assert marks(axes) == [("o", 14.0, 0), *below]
    shown = {text.get_text() for text in figure.legends[0].get_texts()}
    assert shown == {"the row itself", "its placebo (spectrum)", "its placebo (entropy)"}
    (axes,) = forest(with_placebos, "Imp.-3")["forest"].axes
    assert ticks(axes) == ["of another", "Mimetic", "Kaiming uniform", "over another base"]
    assert [x for marker, x, _ in marks(axes) if marker == "o"] == [6.0, -2.0, -8.0, -28.0]
    assert [x for marker, x, _ in marks(axes) if marker != "o"] == [-5.0, 1.0]


def test_a_placebo_on_another_model_is_none_of_a_row(with_placebos, monkeypatch):
    (root,) = with_placebos.folders
    monkeypatch.setitem(ROWS, "wider", placebo("norm"))
    several(root, {"wider": (20.0, 20.0, 22.0)}, width=96)
    assert placebos(load([root])) == placebos(with_placebos)


def test_there_is_none_without_a_placebo_beside_its_method(compared):
    assert forest(compared) == {}


# --- files ---


@pytest.mark.long
def test_files_are_written_and_stable(tmp_path):
    root = write(tmp_path / "records", done("A $x^", (10.0, 20.0), label="A $x^ [b]", maps=[PEAK]))
    written = []
    for out in (tmp_path / "one", tmp_path / "two"):
        assert figures.main(["--results", str(root), "--out", str(out)]) == 0
        written.append({path.name: path.read_bytes() for path in out.iterdir()})
    names = ("accuracy", "attention_offsets")
    assert written[0].keys() == {f"{name}.{end}" for name in names for end in ("pdf", "png")}
    assert written[0] == written[1]
    assert all(len(content) > 5000 for content in written[0].values())


def test_what_cannot_be_drawn_is_said(tmp_path, capsys):
    root = write(tmp_path / "records", done("Mimetic", (10.0,)))
    arguments = ["--results", str(root), "--out", str(tmp_path / "out")]
    assert figures.main(arguments) == 0
    printed = capsys.readouterr().out
    assert "attention_offsets: no record holds attention by offset" in printed
    assert "differences" in printed
    assert list((tmp_path / "out").iterdir()) == [], "accuracy needs more than one evaluated epoch"
