"""What every registered figure and curve must do, whatever it is about."""

from __future__ import annotations

import itertools
import math
import re
from pathlib import Path

import matplotlib.pyplot as plt
import pytest
from contract_studies import committed_studies, contract_studies
from figure_checks import assert_readable

from analysis.curves.registry import CURVES
from analysis.figures.registry import FIGURES, Drawing
from analysis.frame import Study, load
from analysis.plotting import fonts, style
from analysis.tables.registry import TABLES

DRAWINGS = {
    f"{drawings.package}: {drawing.name}": drawing for drawings in (FIGURES, CURVES) for drawing in drawings.entries()
}
OF_LINES = [name for name, each in DRAWINGS.items() if any(each.name in of._numbers for of in (FIGURES, CURVES))]


@pytest.fixture(scope="module", autouse=True)
def _style():
    with plt.rc_context():
        style.set_defaults()
        yield


@pytest.fixture(scope="module")
def studies(tmp_path_factory, _style) -> dict[str, Study]:
    studies = contract_studies(tmp_path_factory.mktemp("studies"))
    fonts.use_for(studies.values())
    return studies


@pytest.fixture(params=DRAWINGS)
def drawing(request) -> Drawing:
    return DRAWINGS[request.param]


@pytest.fixture(autouse=True)
def _closed():
    yield
    plt.close("all")


@pytest.mark.parametrize("drawings", [FIGURES, CURVES], ids=lambda drawings: drawings.package)
def test_names_and_places_are_told_apart(drawings):
    entries = drawings.entries()
    assert len({each.place for each in entries}) == len(entries)
    assert all(re.fullmatch(r"[a-z_]+", each.name) for each in entries), "a part of a file's name"
    assert all(each.why_none and each.why_none.isprintable() for each in entries), "one line"


@pytest.mark.parametrize("heading", ["Tables", "Figures", "Curves"])
def test_what_the_readme_lists_is_there(heading):
    registry = {"Tables": TABLES, "Figures": FIGURES, "Curves": CURVES}[heading]
    text = (Path(__file__).parents[2] / "analysis/README.md").read_text(encoding="utf-8")
    _, _, part = text.partition(f"\n## {heading}\n")
    listed = [line.split("|")[1] for line in part.partition("\n## ")[0].splitlines() if line.startswith("| `")]
    names = {name.removeprefix("STUDY") for cell in listed for name in re.findall("`([^`]*)`", cell)}
    assert len(names) >= 6
    assert names <= {entry.name for entry in registry.entries()}


@pytest.mark.parametrize("drawings", [FIGURES, CURVES], ids=lambda drawings: drawings.package)
def test_a_caption_is_one_sentence_that_says_what_to_see(drawings):
    captions = [each.caption for each in drawings.entries()]
    assert all(re.fullmatch(r"[A-Z][^.?\n]{20,130}[.?]", caption) for caption in captions), captions
    assert len(set(captions)) == len(captions), "each its own"


def test_it_is_drawn_or_not_on_any_records_and_never_fails(studies, drawing):
    drawn = {name: drawing.figures(study) for name, study in studies.items()}
    for figures in drawn.values():
        for file, figure in figures.items():
            assert re.fullmatch(rf"{drawing.name}(-[\w.-]*)?", file), "files go by the name of the figure"
            assert figure.get_suptitle()


def test_any_row_can_be_the_baseline(studies, drawing):
    study = studies["unlike runs"]
    for row in study.rows[:2]:
        drawing.figures(study, row)


@pytest.mark.parametrize("drawing", OF_LINES, indirect=True)
def test_the_numbers_for_the_report_are_those_that_are_drawn(studies, drawing):
    drawings = next(each for each in (FIGURES, CURVES) if drawing in each.entries())
    everywhere = itertools.chain(studies.items(), committed_studies())
    compared = 0
    for name, study in everywhere:
        if compared and name not in studies:
            break
        figures, charts = drawing.figures(study), drawings.charts(drawing, study)
        assert charts.keys() == figures.keys()
        for file, chart in charts.items():
            drawn = figures[file].axes
            assert len(drawn) >= len(chart.panels) > 0
            for axes, panel in zip(drawn, chart.panels, strict=False):
                lines = [line.get_xydata().tolist() for line in axes.get_lines()]
                for numbers in panel.lines.values():
                    assert len(numbers.x) == len(numbers.mean) == len(numbers.std) == len(numbers.n) > 0
                    assert [list(point) for point in zip(numbers.x, numbers.mean, strict=True)] in lines
                    assert all(math.isnan(std) == (n == 1) for std, n in zip(numbers.std, numbers.n, strict=True))
                    compared += 1
    assert compared


def test_it_is_readable_and_the_same_records_give_the_same_bytes(studies, drawing):
    everywhere = itertools.chain(studies.items(), committed_studies())
    found = next(((study, figures) for _, study in everywhere if (figures := drawing.figures(study))), None)
    assert found, "no study allows this figure: say in contract_studies.py how one does"
    study, figures = found
    file, figure = next(iter(figures.items()))
    assert_readable(figure)
    written = [
        style.data_url(drawing.figures(study)[file]),
        style.data_url(drawing.figures(load(study.folders, study.name))[file]),
    ]
    assert written[0] == written[1]
