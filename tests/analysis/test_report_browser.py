"""The report in a real browser: pointer, keyboard, widths, light and dark, and no scripts at all."""

from __future__ import annotations

import base64
import io
import os
import re
import statistics
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from browser import Browser, browser
from PIL import Image
from report_page import EVIL, few_records, hostile_report, write_report

from tests.processes import until

pytestmark = pytest.mark.skipif(os.environ.get("VITINIT_TEST_BROWSER") != "1", reason="make test-browser")

CHART = "document.querySelector('.chart')"
DRAWN = "drawn.length > 0 && drawn[0].plots[0].plot.inner_width > 50"
BEYOND = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
CENTRE = "(({x, y, width, height}) => [x + width / 2, y + height / 2])"
POINT = """((plot, line, epoch) => {
  const view = Bokeh.index.find_one(plot.plot);
  const {x, y} = view.canvas_view.el.getBoundingClientRect();
  const {data} = plot.lines.get(line)[1].data_source;
  const at = data.x.indexOf(epoch);
  return [x + view.frame.x_scale.compute(epoch), y + view.frame.y_scale.compute(data.mean[at])];
})"""
"""Where the point of a curve is in the window."""
TIPS = """(() => {
  const below = (one) => [one, ...(one.shadowRoot ? all(one.shadowRoot) : [])];
  const all = (root) => [...root.querySelectorAll("*")].flatMap(below);
  const seen = all(document).filter((one) => one.className === "bk-tooltip-content" && one.checkVisibility());
  return seen.map((one) => one.innerText.replaceAll(/\\s+/g, " "));
})()"""


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as its:
        yield its


@pytest.fixture
def tab(chromium: Browser) -> Iterator[Browser]:
    """The browser, in which no page may write to the console or ask for anything."""
    yield chromium
    assert chromium.said == []
    assert [address for address in chromium.asked if not address.startswith("file:")] == []
    assert len(chromium.asked) == 1, "the page itself"


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("few")


@pytest.fixture(scope="module")
def records(folder) -> list[dict]:
    return few_records(folder)


@pytest.fixture(scope="module")
def page(folder, records) -> Path:
    write_report(folder / "report.html", "--results", folder)
    return folder / "report.html"


@pytest.fixture(scope="module")
def hostile(tmp_path_factory) -> Path:
    return hostile_report(tmp_path_factory.mktemp("hostile"))


def show_chart(tab: Browser) -> None:
    tab.run(f"{CHART}.scrollIntoView()")
    tab.until(DRAWN)


def test_a_pointer_over_a_curve_shows_row_epoch_mean_spread_and_n(tab, page, records):
    tab.open(page)
    show_chart(tab)
    assert tab.run(TIPS) == []
    before = colours_of(tab)[GREEN]
    assert before > 100
    tops = [
        record["history"][2]["test_top1"]
        for record in records
        if (record["row"], record["spec"]["dataset"]["name"]) == ("Mimetic", "digits")
    ]
    assert len(tops) == 3
    tab.point(*tab.run(f"{POINT}(drawn[0].plots[0], 1, 3)"))
    tab.until(f"{TIPS}.length")
    value = f"{statistics.mean(tops):.2f} ± {statistics.stdev(tops):.2f}"
    assert tab.run(TIPS) == [f"row: Mimetic epoch: 3 mean ± sd: {value} n: 3"], "one, not one each for line and dot"
    assert 0.5 < colours_of(tab)[GREEN] / before < 2, "in its own colour, but for what the tooltip covers"
    tab.point(5, 5)
    tab.until(f"{TIPS}.length === 0")


def test_the_legend_hides_a_row_by_click_and_by_keyboard(tab, page):
    tab.open(page)
    show_chart(tab)
    seen = "drawn[0].plots.map(({lines}) => [0, 1].map((row) => lines.get(row).every((each) => each.visible)))"
    button = f"{CHART}.querySelector('.legend button')"
    assert tab.run(seen) == [[True, True], [True, True]]
    tab.click(*tab.run(f"{CENTRE}({button}.getBoundingClientRect())"))
    assert tab.run(seen) == [[False, True], [False, True]]
    assert tab.run(f"{button}.getAttribute('aria-pressed')") == "false"
    tab.run(f"{button}.focus()")
    tab.press("Enter")
    assert tab.run(seen) == [[True, True], [True, True]]


def test_the_list_of_numbers_says_of_each_panel_what_it_is(tab, page):
    tab.open(page)
    show_chart(tab)
    numbers = f"{CHART}.querySelector('.numbers')"
    tab.run(f"{numbers}.open = true")
    tab.until(f"{numbers}.querySelectorAll('td').length > 0")
    heads = tab.run(
        f"[...{numbers}.querySelectorAll('tr')].filter((row) => row.querySelector('th')).map((row) => row.innerText)"
    )
    titles = tab.run(f"[...{CHART}.querySelectorAll('.panel h4')].map((title) => title.innerText)")
    assert len(titles) == len(set(titles)) == 2
    assert tab.run(f"[...{numbers}.querySelectorAll('caption')].map((one) => one.innerText)") == titles
    assert all("epoch" in head and "top-1" in head for head in heads)


def test_the_legend_of_rows_hides_their_panels(tab, page):
    tab.open(page)
    button = "document.querySelector('[data-panels=Mimetic] button')"
    panels = f"[...{button}.closest('.chart').querySelectorAll('.panel')].filter((one) => one.checkVisibility())"
    tab.run(f"{button}.closest('details').open = true")
    tab.run(f"{button}.scrollIntoView()")
    assert tab.run(f"{panels}.map((one) => one.dataset.row)") == ["Kaiming uniform", "Mimetic", "Imp.-3"]
    tab.click(*tab.run(f"{CENTRE}({button}.getBoundingClientRect())"))
    assert tab.run(f"{panels}.map((one) => one.dataset.row)") == ["Kaiming uniform", "Imp.-3"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 768, 1440])
def test_nothing_is_wider_than_the_window_folded_or_open(tab, page, width, scheme):
    tab.open(page, width, scheme)
    assert tab.run("innerWidth") == width
    assert tab.run(BEYOND) == 0
    tab.run("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    show_chart(tab)
    assert tab.run(BEYOND) == 0
    assert tab.run(
        "[...document.querySelectorAll('.chart')].every((one) => one.getBoundingClientRect().right <= innerWidth)"
    )


def test_the_first_screen_of_a_phone_has_the_point_of_the_winner(tab, page):
    tab.open(page, 390)
    tab.tell("Emulation.setDeviceMetricsOverride", width=390, height=844, deviceScaleFactor=1, mobile=True)
    x, y = tab.run(f"{CENTRE}(document.querySelector('.forest [data-row=Mimetic] circle').getBoundingClientRect())")
    assert 0 < x < 390
    assert 0 < y < 844
    assert tab.run(f"document.elementFromPoint({x}, {y}).closest('tr').dataset.row") == "Mimetic", "nothing covers it"


def colours_of(tab: Browser) -> Counter[tuple[int, ...]]:
    """How many pixels of the first panel have which colour."""
    box = tab.run(f"{CHART}.querySelector('.plot').getBoundingClientRect().toJSON()")
    clip = {name: box[name] for name in ("x", "width", "height")} | {"y": box["y"] + tab.run("scrollY"), "scale": 1}
    shot = base64.b64decode(tab.tell("Page.captureScreenshot", format="png", clip=clip)["data"])
    image = Image.open(io.BytesIO(shot)).convert("RGB")
    return Counter({colour: number for number, colour in image.getcolors(image.width * image.height)})


BLACK, WHITE, GREEN = (0, 0, 0), (255, 255, 255), (0, 158, 115)
"""The last is mimetic's."""


def test_the_curves_follow_light_and_dark_at_once(tab, page):
    """The base is drawn in black on white, and in white in the dark; as many pixels as a line has."""
    tab.open(page, scheme="light")
    show_chart(tab)
    light = colours_of(tab)
    assert light.most_common(1)[0][0] == WHITE, "the ground"
    assert light[BLACK] > 100
    tab.dark(True)
    until(lambda: colours_of(tab)[WHITE] > 100 and not colours_of(tab)[BLACK], "the base is white")
    assert sum(colours_of(tab).most_common(1)[0][0]) < 150, "the ground is dark"
    tab.dark(False)
    until(lambda: colours_of(tab)[BLACK] > 100, "the base is black again")
    tab.open(page, scheme="dark")
    show_chart(tab)
    until(lambda: colours_of(tab)[WHITE] > 100, "the base is white from the start")
    assert colours_of(tab)[BLACK] == 0


def test_the_keyboard_reaches_and_opens_everything_that_folds(tab, page):
    tab.open(page)
    folds = tab.run("document.querySelectorAll('details').length")
    assert folds > 20
    while True:
        tab.press("Tab")
        tab.run("window.seen ??= new Set()")
        if tab.run("document.activeElement === document.body || window.seen.has(document.activeElement)"):
            break
        tab.run("window.seen.add(document.activeElement)")
        if tab.run("document.activeElement.localName === 'summary' && !document.activeElement.parentElement.open"):
            tab.press("Enter")
            assert tab.run("document.activeElement.parentElement.open")
            tab.until("!document.activeElement.matches('.numbers > :first-child:last-child')")  # which are listed now
            assert tab.run("getComputedStyle(document.activeElement).outlineStyle") == "solid", (
                "it is seen where one is"
            )
    shut = tab.run("[...document.querySelectorAll('details:not([open]) > summary')].map((one) => one.textContent)")
    assert shut == []
    every = "[...document.querySelectorAll('summary, button, select, a, input')]"
    assert tab.run(f"{every}.filter((one) => !window.seen.has(one)).map((one) => one.outerHTML)") == []


def test_without_scripts_the_curves_stand_still(tab, page):
    tab.open(page, scripts=False)
    # the protocol's own evaluation runs even where the page's scripts do not
    assert tab.run("document.querySelectorAll('.panel svg polyline').length") > 20
    assert tab.run("document.querySelectorAll('button').length") == 1, "that of the filters, which is hidden"
    assert not tab.run("document.querySelector('#filters').checkVisibility()")
    assert tab.run("document.querySelector('.panel svg').checkVisibility()")
    tab.run(f"{CHART}.scrollIntoView()")
    assert colours_of(tab)[BLACK] > 100, "the base's curve is seen"


CASES = [
    ("few", "", 18),
    ("few", "#dataset=digits", 9),
    ("few", "#dataset=digits&row=Mimetic", 3),
    ("few", "#row=Mimetic", 6),
    ("few", "#row=unknown", 18),
    ("hostile", "", 3),
    ("hostile", f"#row={quote(EVIL)}", 1),
]
"""Page, fragment of its address, and how many runs are to be seen."""
SEEN = "Array.from(document.querySelectorAll(%s)).filter((one) => one.checkVisibility())"


@pytest.mark.parametrize(("name", "fragment", "runs"), CASES)
def test_an_address_says_what_is_shown(tab, page, hostile, name, fragment, runs):
    tab.open(page if name == "few" else hostile, 360, part=fragment)
    tab.run("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    assert tab.run(BEYOND) == 0
    assert tab.run(SEEN % "'.run'" + ".length") == runs
    assert re.match("vitinit report: small", tab.run("document.title")), "no text of a record has run"
    if "dataset=digits" in fragment:
        datasets = tab.run(SEEN % "'section td[data-dataset]'" + ".map((one) => one.dataset.dataset)")
        assert {"digits", "digits: top-1 (%)"} <= set(datasets)
        assert all(label.partition(": ")[0] == "digits" for label in datasets)
