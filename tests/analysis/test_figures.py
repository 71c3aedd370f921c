"""Figures: what they draw, looked up in the drawn objects; files that are there and stable."""

from __future__ import annotations

import itertools
import statistics

import matplotlib as mpl
import pytest
from contract_studies import REFERENCE
from synthetic_records import done, everything, write

from analysis.curves.efficiency import over_train_size
from analysis.figures import __main__ as figures
from analysis.figures.accuracy import accuracy
from analysis.figures.cost import cost
from analysis.figures.differences import differences
from analysis.figures.offsets import offsets
from analysis.figures.train_size import several_sizes, train_size
from analysis.frame import load, load_all
from analysis.plotting.style import WIDTH, looks, set_defaults
from benchmark.records.store import Layout, Store

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
    mimetic, impulse, _ = first.get_lines()
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
    for figure in (accuracy(study)["accuracy"], differences(study, "Kaiming uniform")["differences"]):
        figure.canvas.draw()
        boxes = [axes.title.get_window_extent() for axes in figure.axes if axes.get_title()]
        assert len(boxes) == 4
        assert not any(first.overlaps(second) for first, second in itertools.combinations(boxes, 2))


def of_dataset(record, **fields):
    """The same with other fields of the dataset, and with what it measured on the images that these ask for."""
    run = record.spec.model_copy(update={"dataset": record.spec.dataset.model_copy(update=fields)})
    history, counts = record.history, record.dataset
    if run.dataset.evaluate_on == "val":
        measured = [{"val_top1": e.test_top1, "val_loss": 1.0, "test_top1": None, "test_loss": None} for e in history]
        history = [type(e).model_validate({**e.model_dump(), **new}) for e, new in zip(history, measured, strict=True)]
        counts = counts.model_copy(update={"val": run.dataset.val_size, "test": None})
    return record.model_copy(update={"spec": run, "run_id": run.run_id, "history": history, "dataset": counts})


def test_validation_images_are_never_called_test_images(tmp_path):
    for row, seed in itertools.product(("Kaiming uniform", "Mimetic"), (0, 1)):
        write(tmp_path, of_dataset(done(row, seed=seed), val_size=2000, evaluate_on="val"))
    study = load([tmp_path])
    for name, drawing in {"accuracy": accuracy, "differences": differences, "cost": cost}.items():
        said = [text.get_text().lower() for text in drawing(study)[name].findobj(mpl.text.Text)]
        assert any("validation top-1" in text for text in said)
        assert not any("test top-1" in text for text in said)


def test_accuracy_needs_more_than_one_evaluated_epoch(tmp_path):
    write(tmp_path, done("Mimetic", (10.0,)))
    assert accuracy(load([tmp_path])) == {}


def test_accuracy_over_train_size(tmp_path, study):
    assert train_size(study) == {}, "one size per dataset"
    for size, top1 in ((None, 90.0), (500, 50.0), (5000, 70.0)):
        for seed in (0, 1):
            write(tmp_path, done("Mimetic", (top1 + seed,), dataset="svhn", train_size=size, seed=seed))
    (axes,) = train_size(load([tmp_path]))["train_size"].axes
    assert axes.get_title() == "svhn: n=2, 1 epoch"
    ((images, means, *look),) = drawn(axes)
    assert (images, means) == ([500, 5000, 73257], pytest.approx([50.5, 70.5, 90.5], abs=1e-3)), "whole test images"
    assert look == [looks(study)["Mimetic"].color, "^"]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["500", "5,000", "73,257"]


def test_images_drawn_anew_and_validation_have_panels_of_their_own(tmp_path):
    for size in (500, 5000):
        for plus, dataset in enumerate([{}, {"train_draw": "seed"}, {"val_size": 2000, "evaluate_on": "val"}]):
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
    assert [label.get_text() for label in digits.get_yticklabels()] == ["Kaiming uniform", "Mimetic"]
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


def test_the_comparisons_that_a_grid_names_are_drawn(tmp_path):
    """Also those of rows that have no own base, and of no others."""
    found = {"ConViT": (60.0, 64.0, 67.0), "DeiT": (58.0, 60.0, 62.0), "Mimetic": (50.0, 51.0, 52.0)}
    for row, top1 in found.items():
        run = "Kaiming uniform" if row == "DeiT" else row
        write(tmp_path, *(done(run, (value,), seed=seed, label=row) for seed, value in enumerate(top1)))
    Store(tmp_path).write_layout("small", Layout(rows=list(found), contrasts=[("ConViT", "DeiT")]))
    study = load([tmp_path])
    (axes,) = differences(study)["differences"].axes
    assert [text.get_text() for text in axes.get_yticklabels()] == ["ConViT − DeiT"]
    seeds, _, mean, _ = drawn(axes)
    look = looks(study)["ConViT"]
    assert seeds == ([2.0, 4.0, 5.0], [0.3] * 3, look.color, ".")
    assert mean[0] == [pytest.approx(11 / 3)]
    (axes,) = differences(study, "Mimetic")["differences"].axes
    assert [text.get_text() for text in axes.get_yticklabels()] == ["ConViT", "DeiT"], "as asked for"


def test_a_record_that_is_deleted_changes_its_own_part_only(compared):
    before = [drawn(axes) for axes in differences(compared, "Trunc normal")["differences"].axes]
    (gone,) = (r for r in compared.contents.done.values() if (r.row, r.spec.seed) == ("Mimetic", 2))
    (compared.folders[0] / "small" / f"{gone.run_id}.json").unlink()
    after = [drawn(axes) for axes in differences(load(compared.folders), "Trunc normal")["differences"].axes]
    assert after[1] == before[1]
    assert after[0][:3] == before[0][:3], "the other row"
    *_, color, _ = before[0][3]
    assert [line[:3] for line in after[0][3:-1]] == [([5.0, 7.0], [1.3, 1.3], color), ([6.0], [1], color)]


def test_each_method_against_its_own_base(compared):
    (figure,) = differences(compared).values()
    digits, _ = figure.axes
    assert [label.get_text() for label in digits.get_yticklabels()] == ["Mimetic"]
    seeds, _, mean, _ = drawn(digits)
    assert (seeds[0], mean[0]) == ([6.0, 8.0, 10.0], [8.0])
    assert figure.get_suptitle().startswith("Test top-1 minus that of the own base, by seed")
    took, gained = ([line[:2] for line in drawn(axes) if len(line[0]) == 1] for axes in cost(compared)["cost"].axes[:2])
    assert (took, gained) == ([([500.0], [0])], [([8.0], [0])])


def test_cost_is_milliseconds_and_their_spread_beside_the_difference(compared):
    compared.runs.loc[compared.runs["row"] == "Mimetic", "init_seconds"] = [1.0, 2.0, 6.0, 0.0, 0.0]
    took, gained, took_cifar, _ = cost(compared, "Trunc normal")["cost"].axes
    assert took.get_xscale() == "log"
    assert [axes.get_xlabel() for axes in (took, gained)] == [
        "initialisation (ms, log scale)",
        "gain in test top-1 (points)",
    ]
    assert [label.get_text() for label in took.get_yticklabels()] == ["Kaiming uniform", "Mimetic"]
    lines = [line[:2] for line in drawn(took)]
    assert [line for line in lines if len(line[0]) == 1] == [([500.0], [0]), ([3000.0], [1])]
    assert ([1000.0, 6000.0], [1, 1]) in lines, "the fastest and the slowest seed"
    assert [line[:2] for line in drawn(gained) if len(line[0]) == 1] == [([-1.0], [0]), ([7.0], [1])]
    assert ([0.1], [1]) in [line[:2] for line in drawn(took_cifar)], "a logarithmic scale has no 0"


def test_attention_by_offset_shows_every_head_on_one_scale(study):
    axes = offsets(study)["attention_offsets"].axes[0]
    shown = axes.get_images()
    assert len(shown) == 2 + 3
    assert [text.get_text() for text in axes.texts] == ["Mimetic", "Imp.-3", "head 1", "head 2", "head 3"]
    assert shown[0].get_array()[1][1] == 0.6
    assert len({image.get_clim() for image in shown}) == 1
    assert [label.get_text() for label in axes.get_yticklabels()] == ["−1", "0", "1"] * 2
    middles = [((left + right) / 2, (low + high) / 2) for left, right, low, high in (i.get_extent() for i in shown)]
    assert len({y for _, y in middles}) == 2, "a line per row"
    squares = {
        (square.x0 + square.x1, square.y0 + square.y1, square.width)
        for square in (patch.get_bbox() for patch in axes.patches)
    }
    expected = {(2 * x, 2 * y, 1 / 3) for x, y in middles}
    assert {tuple(round(v, 9) for v in one) for one in squares} == {tuple(round(v, 9) for v in one) for one in expected}


def seen(look):
    """What tells one row from another."""
    return look.color, look.marker, look.linestyle, look.filled


def test_a_row_looks_the_same_in_every_study_and_whichever_rows_are_there(tmp_path):
    order = ["Kaiming uniform", "A plug-in's", "Mimetic", "Another's"]
    for number, some in enumerate((order, order[1:], order[2:])):
        root = tmp_path / str(number)
        for row in some:
            method = {"alpha_qk": 0.1 * order.index(row)} if "'s" in row else None
            write(root, done("Mimetic" if method else row, (10.0,), label=row, params=method))
        Store(root).write_layout("small", Layout(rows=order))
    all_rows, *fewer = (looks(load([tmp_path / str(number)])) for number in range(3))
    for known in fewer:
        assert {row: seen(look) for row, look in known.items()} == {row: seen(all_rows[row]) for row in known}
    for name, other in itertools.combinations(("small", "long-range-small", "table2-small"), 2):
        one, another = (looks(load([REFERENCE], each)) for each in (name, other))
        for row in one.keys() & another.keys():
            assert seen(one[row]) == seen(another[row]), f"{row} in {name} and {other}"


def test_a_method_has_one_colour_and_marker_over_all_bases_and_the_base_shows():
    known = looks(load([REFERENCE], "table2-small"))
    methods = [row for row in known if f"Trunc normal + {row}" in known]
    assert len(methods) == 4
    for row in methods:
        ours, other = known[row], known[f"Trunc normal + {row}"]
        assert (ours.color, ours.marker) == (other.color, other.marker)
        assert ours.linestyle != other.linestyle
        assert ours.filled
        assert not other.filled
    assert known["Trunc normal"].linestyle == known["Trunc normal + Mimetic"].linestyle
    assert known["Trunc normal"].color == known["Kaiming uniform"].color == "#000000"


def test_all_rows_of_every_committed_study_are_told_apart():
    for study in load_all([REFERENCE]):
        known = looks(study)
        assert list(known) == study.rows
        assert len({seen(look) for look in known.values()}) == len(known), study.name


def test_a_row_is_drawn_in_its_look_in_every_figure(tmp_path, compared):
    points = {}
    for figure, place in ((accuracy(everything_of(tmp_path)), 1), (differences(compared, "Trunc normal"), 0)):
        for line in figure[next(iter(figure))].axes[place].lines:
            points.setdefault((line.get_color(), line.get_marker()), []).append(line)
    look = looks(compared)["Mimetic"]
    assert len(points[look.color, look.marker]) == 2
    (point,) = [
        line
        for line in cost(compared, "Trunc normal")["cost"].axes[0].lines
        if (line.get_color(), line.get_marker()) == (look.color, look.marker)
    ]
    assert point.get_markerfacecolor() == look.color


def everything_of(folder):
    return load([everything(folder / "everything")])


def test_rows_that_guess_are_one_grey_and_named_once(tmp_path):
    """Ten classes and 10,000 images: 95 % of those who guess are between 9.41 and 10.59 %."""
    tops = {"Mimetic": (10.5, 9.5), "Imp.-3": (10.5, 9.3), "Imp.-5": (30.0, 50.0), "ConViT": (10.0, 10.0)}
    write(tmp_path, *(done(row, top1) for row, top1 in tops.items()))
    (figure,) = accuracy(load([tmp_path])).values()
    assert figure.get_suptitle().endswith("\ngrey: no better than guessing: Mimetic, ConViT")
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["Imp.-3", "Imp.-5"]
    (axes,) = figure.axes
    greys = [list(line.get_ydata()) for line in axes.lines if line.get_color() == "#bbbbbb"]
    assert greys == [[10.5, 9.5], [10.0, 10.0]]
    assert [line.get_ydata()[0] for line in axes.lines if line.get_linestyle() == ":"] == [10.0]


def test_many_rows_have_several_panels_each_beside_its_base_on_one_scale():
    study = load([REFERENCE], "ablations-small")
    (figure,) = accuracy(study).values()
    parts = [[text.get_text() for text in axes.get_legend().get_texts()] for axes in figure.axes]
    assert max(map(len, parts)) <= 8
    assert sorted({row for part in parts for row in part}) == sorted(study.rows)
    for part in parts:
        assert len(part) > 1
        assert part[0] in ("Kaiming uniform", "Kaiming uniform, learned embedding")
    assert len({axes.get_ylim() for axes in figure.axes}) == 1
    means = {
        row: [statistics.mean(each) for each in zip(*([e.test_top1 for e in run.history] for run in runs), strict=True)]
        for (_, row), runs in study.cells.items()
    }
    for axes, part in zip(figure.axes, parts, strict=True):
        drawn_here = [list(line.get_ydata()) for line in axes.lines if line.get_color() != "#bbbbbb"]
        assert drawn_here == [pytest.approx(means[row]) for row in part]


def test_lines_that_coincide_have_their_markers_at_different_epochs(tmp_path):
    rows = ("Mimetic", "Imp.-3")
    write(tmp_path, *(done(row, (10.0, 30.0, 40.0, 50.0, 60.0, 65.0)) for row in rows))
    (axes,) = accuracy(load([tmp_path]))["accuracy"].axes
    first, second = (line.get_markevery() for line in axes.lines[:2])
    assert first == (0, 2)
    assert second == (1, 2)


def test_a_line_of_few_epochs_has_a_marker_and_a_tick_at_each(tmp_path):
    write(tmp_path, *(done(row, (10.0, 30.0, 40.0, 50.0)) for row in ("Mimetic", "Imp.-3")))
    (axes,) = accuracy(load([tmp_path]))["accuracy"].axes
    assert {line.get_markevery() for line in axes.lines[:2]} == {(0, 1)}
    assert list(axes.get_xticks()) == list(axes.lines[0].get_xdata()) == [1, 2, 3, 4]


def test_text_can_be_read_in_print(compared):
    with mpl.rc_context():
        set_defaults()
        shown = accuracy(load([REFERENCE], "small"))["accuracy"], differences(compared, "Trunc normal")["differences"]
        for figure in shown:
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
