"""The report in a real browser: its legend by click and by keyboard, and no scripts at all."""

from __future__ import annotations

from pathlib import Path

import pytest
from browser import CHROMIUM, browser
from report_page import REFERENCE, write_report

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")

CHART = "document.querySelector('.chart')"
DRAWN = f"{CHART}.querySelector('.panel svg') === null && drawn[0].plots[0].plot.inner_width > 50"


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("report") / "report.html"
    write_report(out, "--results", REFERENCE, "--study", "small")
    return out


@pytest.fixture
def tab():
    with browser() as tab:
        yield tab


def test_the_legend_hides_a_row_by_click_and_by_keyboard(tab, page):
    tab.open(page)
    tab.run(f"{CHART}.scrollIntoView()")
    tab.until(DRAWN)
    seen = "drawn[0].plots.map(({lines}) => [0, 1].map((row) => lines.get(row).every((each) => each.visible)))"
    button = f"{CHART}.querySelector('.legend button')"
    assert tab.run(seen) == [[True, True], [True, True]]
    x, y = tab.run(f"(({{x, y, width, height}}) => [x + width / 2, y + height / 2])({button}.getBoundingClientRect())")
    tab.click(x, y)
    assert tab.run(seen) == [[False, True], [False, True]]
    assert tab.run(f"{button}.getAttribute('aria-pressed')") == "false"
    tab.run(f"{button}.focus()")
    tab.press("Enter", "\r")
    assert tab.run(seen) == [[True, True], [True, True]]


def test_without_scripts_the_curves_stand_still(tab, page):
    tab.open(page, scripts=False)
    # the protocol's own evaluation runs even where the page's scripts do not
    assert tab.run("document.querySelectorAll('.panel svg polyline').length") > 20
    assert tab.run("document.querySelectorAll('button').length") == 1, "that of the filters, which is hidden"
    assert not tab.run("document.querySelector('#filters').checkVisibility()")
    assert tab.run("document.querySelector('.panel svg').checkVisibility()")
    tab.call("Emulation.setScriptExecutionDisabled", value=False)
