"""Contract of every registered figure and curve, whatever it is about."""

from __future__ import annotations

import re

import matplotlib.pyplot as plt
import pytest

from vitinit.analysis.curves.registry import CURVES
from vitinit.analysis.figures import style
from vitinit.analysis.figures.registry import FIGURES
from vitinit.analysis.frame import load

DRAWINGS = {
    f"{drawings.packages[0]}: {drawing.name}": drawing
    for drawings in (FIGURES, CURVES)
    for drawing in drawings.entries()
}


@pytest.fixture(scope="module", autouse=True)
def _style():
    with plt.rc_context():
        style.set_defaults()
        yield


@pytest.fixture(autouse=True)
def _closed():
    yield
    plt.close("all")


@pytest.mark.long
@pytest.mark.parametrize("name", DRAWINGS)
def test_any_records_give_figures_or_none_with_the_same_bytes(studies, name):
    drawing, found = DRAWINGS[name], None
    for study in studies.values():
        for file, grid in drawing.figures(study).items():
            assert re.fullmatch(rf"{drawing.name}(-[\w.-]*)?", file), "files go by the name of the figure"
            assert grid.figure.get_suptitle()
            assert len(grid.data)
            found = found or (study, file, grid)
    assert found, "no study allows this figure: say in contract_studies.py how one does"
    study, file, grid = found
    again = drawing.figures(load(study.folders, study.name))
    assert style.to_svg(grid.figure) == style.to_svg(again[file].figure), "the same bytes"
    for row in studies["unlike runs"].rows[:2]:
        drawing.figures(studies["unlike runs"], row)  # any row can be the baseline
