"""The forest plot: who stands where, and which placebo belongs to which method."""

from __future__ import annotations

import matplotlib as mpl
import pytest
from contract_studies import REFERENCE
from figure_checks import assert_readable
from synthetic_records import KAIMING, MIMETIC, ROWS, TRUNC, done, write

from analysis.figures.forest import forest
from analysis.frame import load
from analysis.plotting.style import set_defaults

mpl.use("agg")


def placebo(keep: str, base=KAIMING, **of):
    params = {"of": {"name": "mimetic", **MIMETIC, **of}, "keep": keep}
    return {"base": base, "method": {"name": "placebo", "params": params}}


@pytest.fixture
def few(tmp_path, monkeypatch):
    """Three seeds of a base, two methods, and four placebos: two of one method, two of what is not in the study."""
    top1 = {"Kaiming uniform": 30, "Imp.-3": 38, "Mimetic": 36}
    for row, rest, gained in (
        ("rotated", placebo("spectrum"), 33),
        ("as spread out", placebo("entropy"), 39),
        ("of another", placebo("spectrum", alpha_qk=0.6), 44),
        ("over another base", placebo("spectrum", base=TRUNC), 10),
    ):
        monkeypatch.setitem(ROWS, row, rest)
        top1[row] = gained
    for row, value in top1.items():
        write(tmp_path, *(done(row, (value + seed * (seed > 1),), seed=seed, label=row) for seed in range(3)))
    return load([tmp_path])


def labels(axes):
    return [label.get_text() for label in axes.get_yticklabels()]


def marks(axes):
    """Where the estimates stand, by their marker, from the top."""
    points = [line for line in axes.lines if len(line.get_xdata()) == 1]
    return [(line.get_marker(), line.get_xdata()[0], line.get_ydata()[0]) for line in points]


def test_the_largest_gain_is_first_and_a_placebo_stands_below_its_own_method(few):
    (figure,) = forest(few).values()
    (axes,) = figure.axes
    assert labels(axes) == ["of another", "Imp.-3", "Mimetic"], "what is no placebo of a row here has a line of its own"
    assert axes.yaxis_inverted()
    assert marks(axes) == [
        ("o", 14.0, 0),
        ("o", 8.0, 1),
        ("o", 6.0, 2),
        ("s", 3.0, 2.3),
        ("D", 9.0, 2.6),
    ]
    (shown,) = figure.legends
    assert [text.get_text() for text in shown.get_texts()] == [
        "the row itself",
        "its placebo (spectrum)",
        "its placebo (entropy)",
    ]
    set_defaults()
    (figure,) = forest(few).values()
    assert_readable(figure)


def test_to_one_baseline_all_rows_have_a_line_but_placebos(few):
    (axes,) = forest(few, "Imp.-3")["forest"].axes
    assert labels(axes) == ["of another", "Mimetic", "Kaiming uniform", "over another base"]
    assert [x for marker, x, _ in marks(axes) if marker == "o"] == [6.0, -2.0, -8.0, -28.0]
    assert [x for marker, x, _ in marks(axes) if marker != "o"] == [-5.0, 1.0]


def test_there_is_none_without_a_placebo_beside_its_method():
    assert forest(load([REFERENCE], "small")) == {}
    assert forest(load([REFERENCE], "standard-mechanism")).keys() == {"forest"}
