"""Figures: what they draw, looked up in the drawn objects; files that are there and stable."""

from __future__ import annotations

import itertools
import statistics

import matplotlib as mpl
import pytest
from synthetic_records import done, write

from analysis.figures import __main__ as figures
from analysis.figures.accuracy import accuracy
from analysis.figures.cost import cost
from analysis.figures.differences import differences
from analysis.figures.offsets import offsets
from analysis.figures.style import WIDTH, looks, set_defaults
from analysis.figures.train_size import train_size
from analysis.frame import load

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
    for dataset, seeds in (("digits", 3), ("cifar10", 2)):
        for seed in range(seeds):
            write(tmp_path, done("Trunc normal", (40.0 + seed,), dataset=dataset, seed=seed))
            write(tmp_path, done("Mimetic", (45.0 + 3 * seed,), dataset=dataset, seed=seed))
            write(tmp_path, done("Kaiming uniform", (39.0 + seed,), dataset=dataset, seed=seed))
    return load([tmp_path])


def drawn(axes):
    """What data lines show, as lists of x and y with their colour and marker."""
    return [
        (list(line.get_xdata()), list(line.get_ydata()), line.get_color(), line.get_marker()) for line in axes.lines
    ]


def test_accuracy_lines_are_means_in_the_row_colour(study):
    first, second = accuracy(study)["accuracy"].axes
    assert first.get_title() == "cifar10: n=2, 2 epochs"
    assert second.get_title() == "cifar100: n=1, 2 epochs"
    mimetic, impulse = first.get_lines()
    assert list(mimetic.get_ydata()) == [10.0, statistics.mean((20.0, 24.0))]
    assert list(impulse.get_ydata()) == [30.0, 35.0]
    assert mimetic.get_color() == second.get_lines()[0].get_color() == looks(study)["Mimetic"].color
    assert mimetic.get_color() != impulse.get_color()
    band = first.collections[0].get_paths()[0].vertices[:, 1]
    assert band.max() == pytest.approx(22 + statistics.stdev((20.0, 24.0)))


def test_titles_of_panels_side_by_side_do_not_overlap(tmp_path):
    for width, heads, row, seed in itertools.product((48, 96), (2, 4), ("Kaiming uniform", "Mimetic"), (0, 1, 2)):
        write(tmp_path, done(row, (10.0, 20.0 + seed), seed=seed, width=width, heads=heads))
    study = load([tmp_path])
    set_defaults()
    assert study.columns == [f"cifar10 (width {width}, heads {heads})" for width in (48, 96) for heads in (2, 4)]
    for figure in (accuracy(study)["accuracy"], *differences(study, "Kaiming uniform").values()):
        figure.canvas.draw()
        boxes = [axes.title.get_window_extent() for axes in figure.axes if axes.get_title()]
        assert len(boxes) == 4
        assert not any(first.overlaps(second) for first, second in itertools.combinations(boxes, 2))


def test_accuracy_needs_more_than_one_evaluated_epoch(tmp_path):
    write(tmp_path, done("Mimetic", (10.0,)))
    assert accuracy(load([tmp_path])) == {}


def test_accuracy_over_train_size(tmp_path, study):
    assert train_size(study) == {}, "one size a dataset"
    for size, top1 in ((None, 90.0), (500, 50.0), (5000, 70.0)):
        for seed in (0, 1):
            write(tmp_path, done("Mimetic", (top1 + seed,), dataset="svhn", train_size=size, seed=seed))
    (axes,) = train_size(load([tmp_path]))["train_size"].axes
    assert axes.get_title() == "svhn: n=2, 1 epoch"
    assert drawn(axes) == [([500, 5000, 50000], [50.5, 70.5, 90.5], looks(study)["Mimetic"].color, "^")]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["500", "5,000", "50,000"]


def test_differences_are_paired_by_seed_with_intervals_from_three_pairs_on(compared):
    digits, cifar = differences(compared, "Trunc normal")["differences"].axes
    assert [label.get_text() for label in digits.get_yticklabels()] == ["Kaiming uniform", "Mimetic"]
    assert digits.yaxis_inverted()
    kaiming, mimetic = looks(compared)["Kaiming uniform"], looks(compared)["Mimetic"]
    half = T_OF_3 * statistics.stdev((5.0, 7.0, 9.0)) / 3**0.5
    *_, seeds, mean, interval, zero = drawn(digits)
    assert seeds == ([5.0, 7.0, 9.0], [1, 1, 1], mimetic.color, "|")
    assert mean == ([7.0], [1], mimetic.color, mimetic.marker)
    assert interval[0] == pytest.approx([7 - half, 7 + half], abs=1e-4)
    assert zero[0] == [0, 0]
    assert [line[:3] for line in drawn(cifar)[:-1]] == [
        ([-1.0, -1.0], [0, 0], kaiming.color),
        ([-1.0], [0], kaiming.color),
        ([5.0, 7.0], [1, 1], mimetic.color),
        ([6.0], [1], mimetic.color),
    ], "no interval under three pairs"


def test_a_record_that_is_deleted_changes_its_own_part_only(compared):
    before = [drawn(axes) for axes in differences(compared, "Trunc normal")["differences"].axes]
    (gone,) = (r for r in compared.contents.done.values() if (r.row, r.spec.seed) == ("Mimetic", 2))
    (compared.folders[0] / "small" / f"{gone.run_id}.json").unlink()
    after = [drawn(axes) for axes in differences(load(compared.folders), "Trunc normal")["differences"].axes]
    assert after[1] == before[1]
    assert after[0][:3] == before[0][:3], "the other row"
    *_, color, _ = before[0][3]
    assert [line[:3] for line in after[0][3:-1]] == [([5.0, 7.0], [1, 1], color), ([6.0], [1], color)]


def test_each_method_against_its_own_base(compared):
    (figure,) = differences(compared).values()
    digits, _ = figure.axes
    assert [label.get_text() for label in digits.get_yticklabels()] == ["Mimetic"]
    seeds, mean, *_ = drawn(digits)
    assert (seeds[0], mean[0]) == ([6.0, 8.0, 10.0], [8.0])
    assert figure.get_suptitle().startswith("Test top-1 minus that of the own base, by seed")
    points = [line[:2] for line in drawn(cost(compared)["cost"].axes[0]) if line[3] not in ("None", "")]
    assert points == [([0.5], [8.0])]


def test_cost_is_seconds_against_the_difference(compared):
    compared.runs.loc[compared.runs["row"] == "Mimetic", "init_seconds"] = [1.0, 2.0, 6.0, 0.0, 0.0]
    digits, cifar = cost(compared, "Trunc normal")["cost"].axes
    assert digits.get_xscale() == "log"
    points = [line for line in drawn(digits) if line[3] not in ("None", "")]
    assert [line[:2] for line in points] == [([0.5], [-1.0]), ([3.0], [7.0])]
    assert ([1e-4], [6.0]) in [line[:2] for line in drawn(cifar)], "a logarithmic scale has no 0"


def test_attention_by_offset_shows_every_head_on_one_scale(study):
    shown = [axes for axes in offsets(study)["attention_offsets"].axes if axes.get_images()]
    assert len(shown) == 2 + 3
    assert [axes.get_ylabel() for axes in shown] == ["Mimetic", "", "Imp.-3", "", ""]
    assert shown[0].get_images()[0].get_array()[1][1] == 0.6
    assert len({axes.get_images()[0].get_clim() for axes in shown}) == 1
    assert list(shown[0].get_xticks()) == [-1, 0, 1]
    assert all(axes.patches[0].get_bbox().bounds == (-0.5, -0.5, 1, 1) for axes in shown), "offset (0, 0) is marked"


def test_looks_are_distinct_and_do_not_depend_on_the_rows_that_are_there(study, compared):
    assert all(looks(compared)[row] == look for row, look in looks(study).items())
    assert len(set(looks(study).values())) == len(looks(study))


def test_text_can_be_read_in_print(compared):
    with mpl.rc_context():
        set_defaults()
        for figure in (*accuracy(compared).values(), *differences(compared, "Trunc normal").values()):
            assert figure.get_figwidth() == WIDTH
            figure.draw_without_rendering()
            assert min(text.get_fontsize() for text in figure.findobj(mpl.text.Text) if text.get_text()) >= 7
            whole = figure.get_window_extent()
            (legend,) = figure.legends or [None]
            if legend:
                assert whole.contains(*legend.get_window_extent().min), "nothing is cut off"
                assert whole.contains(*legend.get_window_extent().max), "nothing is cut off"


def test_files_are_written_and_stable(tmp_path, capsys):
    root = write(tmp_path / "records", done("A $x^", (10.0, 20.0), label="A $x^ [b]", maps=[PEAK]))
    written = []
    for out in (tmp_path / "one", tmp_path / "two"):
        assert figures.main(["--results", str(root), "--out", str(out)]) == 0
        written.append({path.name: path.read_bytes() for path in out.iterdir()})
    assert written[0].keys() == {
        f"{name}.{end}" for name in ("accuracy", "attention_offsets") for end in ("pdf", "png")
    }
    assert written[0] == written[1]
    assert all(len(content) > 5000 for content in written[0].values())


def test_one_figure_and_what_cannot_be_drawn(tmp_path, capsys):
    root = write(tmp_path / "records", done("Mimetic", (10.0,)))
    out = tmp_path / "out"
    arguments = ["--results", str(root), "--out", str(out), "--figure"]
    assert figures.main([*arguments, "attention_offsets"]) == 0
    assert "not drawn: attention_offsets: no record holds attention by offset" in capsys.readouterr().out
    assert figures.main([*arguments, "differences"]) == 0
    assert (
        "not drawn: differences: no row has a seed in common with its base, or with the baseline"
        in capsys.readouterr().out
    )
    assert list(out.iterdir()) == []
    assert figures.main([*arguments, "cost", "--baseline", "Mimic"]) == 2
    assert "unknown baseline row 'Mimic'; did you mean 'Mimetic'" in capsys.readouterr().err
