"""What every registered figure and curve must do, whatever it is about."""

from __future__ import annotations

import math
import re
from pathlib import Path

import matplotlib.pyplot as plt
import pytest
from figure_checks import assert_readable
from matplotlib.figure import Figure

from vitinit.analysis.curves.registry import CURVES
from vitinit.analysis.figures.registry import FIGURES
from vitinit.analysis.frame import load
from vitinit.analysis.plotting import fonts, style
from vitinit.analysis.series import Chart
from vitinit.analysis.tables.registry import TABLES

DRAWINGS = {
    f"{drawings.package}: {drawing.name}": drawing for drawings in (FIGURES, CURVES) for drawing in drawings.entries()
}
OF_LINES = [name for name, each in DRAWINGS.items() if any(each.name in of._numbers for of in (FIGURES, CURVES))]


@pytest.fixture(scope="module", autouse=True)
def _style(studies):
    with plt.rc_context():
        style.set_defaults()
        fonts.use_for(studies.values())
        yield


@pytest.fixture(autouse=True)
def _closed():
    yield
    plt.close("all")


@pytest.mark.long
@pytest.mark.parametrize("drawings", [FIGURES, CURVES], ids=lambda drawings: drawings.package)
def test_names_places_and_captions_are_told_apart(drawings):
    entries, captions = drawings.entries(), [each.caption for each in drawings.entries()]
    assert len({each.place for each in entries}) == len(set(captions)) == len(entries)
    assert all(re.fullmatch(r"[a-z_]+", each.name) for each in entries), "a part of a file's name"
    assert all(each.why_none and each.why_none.isprintable() for each in entries), "one line"
    assert all(re.fullmatch(r"[A-Z][^.?\n]{20,130}[.?]", caption) for caption in captions), "one sentence"


def test_what_the_readme_lists_is_there():
    text = (Path(__file__).parents[2] / "analysis/README.md").read_text(encoding="utf-8")
    for heading, registry in {"Tables": TABLES, "Figures": FIGURES, "Curves": CURVES}.items():
        _, _, part = text.partition(f"\n## {heading}\n")
        listed = [line.split("|")[1] for line in part.partition("\n## ")[0].splitlines() if line.startswith("| `")]
        names = {name.removeprefix("STUDY") for cell in listed for name in re.findall("`([^`]*)`", cell)}
        assert len(names) >= 6
        assert names <= {entry.name for entry in registry.entries()}


def same_numbers(figures: dict[str, Figure], charts: dict[str, Chart]) -> int:
    """Number of lines whose numbers the report has; each of them is drawn."""
    compared = 0
    assert charts.keys() == figures.keys()
    for file, chart in charts.items():
        drawn = figures[file].axes
        assert len(drawn) >= len(chart.panels) > 0
        for axes, panel in zip(drawn, chart.panels, strict=False):
            lines = [line.get_xydata().tolist() for line in axes.get_lines()]
            lying = [list(line.get_xdata()) for line in axes.get_lines()]  # a line of dots for each row
            for numbers in panel.lines.values():
                assert len(numbers.x) == len(numbers.mean) == len(numbers.std) == len(numbers.n) > 0
                points = [list(point) for point in zip(numbers.x, numbers.mean, strict=True)]
                assert points in lines or list(numbers.mean) in lying
                assert all(math.isnan(std) == (n == 1) for std, n in zip(numbers.std, numbers.n, strict=True))
                compared += 1
    return compared


@pytest.mark.long
@pytest.mark.parametrize("name", DRAWINGS)
def test_any_records_give_figures_or_none_readable_with_the_numbers_and_bytes_of_the_records(studies, name):
    drawing = DRAWINGS[name]
    drawings = next(each for each in (FIGURES, CURVES) if drawing in each.entries())
    compared, found = 0, None
    for study in studies.values():
        figures = drawing.figures(study)
        if name in OF_LINES:
            compared += same_numbers(figures, drawings.charts(drawing, study))
        for file, figure in figures.items():
            assert re.fullmatch(rf"{drawing.name}(-[\w.-]*)?", file), "files go by the name of the figure"
            assert figure.get_suptitle()
        if figures and not found:
            found = study, *next(iter(figures.items()))
    assert compared or name not in OF_LINES
    assert found, "no study allows this figure: say in contract_studies.py how one does"
    study, file, figure = found
    again = drawing.figures(load(study.folders, study.name))
    assert style.to_svg(figure) == style.to_svg(again[file]), "the same bytes"
    assert_readable(figure)
    for row in studies["unlike runs"].rows[:2]:
        drawing.figures(studies["unlike runs"], row)  # any row can be the baseline
