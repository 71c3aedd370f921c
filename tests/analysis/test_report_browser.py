"""The report in a real browser: pointer, keyboard, widths, light and dark, and no scripts at all."""

from __future__ import annotations

import base64
import csv
import io
import re
import shutil
import statistics
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest
from browser import Browser, browser
from maps_records import keep, recorded
from PIL import Image
from report_page import EVIL, few_records, hostile_report, write_report
from synthetic_records import several

from tests.processes import until
from vitinit.analysis.frame import load
from vitinit.analysis.tables.registry import build
from vitinit.analysis.tables.render import to_csv, to_latex, to_markdown
from vitinit.benchmark.records.maps import read_maps

pytestmark = pytest.mark.browser

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


@pytest.fixture(scope="module")
def mapped(tmp_path_factory) -> Path:
    """A report with attention maps."""
    root = tmp_path_factory.mktemp("mapped")
    several(root, {row: [(30.0, 40.0), (31.0, 42.0), (33.0, 44.0)] for row in ("Kaiming uniform", "Mimetic", "Imp.-3")})
    keep(root, "Mimetic", 0)
    write_report(root / "report.html", "--results", root)
    return root / "report.html"


def slide(tab: Browser, name: str, value: int) -> None:
    tab.run(f"""(() => {{
      const slider = document.querySelector('.maps [name={name}]');
      slider.value = {value};
      slider.dispatchEvent(new Event('input', {{bubbles: true}}));
    }})()""")


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


def picture_of(tab: Browser, element: str) -> Image.Image:
    box = tab.run(f"{element}.getBoundingClientRect().toJSON()")
    clip = {name: box[name] for name in ("x", "width", "height")} | {"y": box["y"] + tab.run("scrollY"), "scale": 1}
    shot = base64.b64decode(tab.tell("Page.captureScreenshot", format="png", clip=clip)["data"])
    return Image.open(io.BytesIO(shot)).convert("RGB")


def colours_of(tab: Browser) -> Counter[tuple[int, ...]]:
    """How many pixels of the first panel have which colour."""
    image = picture_of(tab, f"{CHART}.querySelector('.plot')")
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


SHOWN_ROWS = """(table) => [...table.tBodies[0].rows].filter((row) => row.checkVisibility()).map(
  (row) => [...row.cells].map((cell) => cell.innerText.trim()))"""
OWN = "document.querySelector('[data-table=small] table')"


def click(tab: Browser, element: str) -> None:
    tab.run(f"{element}.scrollIntoView({{block: 'center'}})")
    tab.click(*tab.run(f"{CENTRE}({element}.getBoundingClientRect())"))


def test_a_head_sorts_its_table_by_number_and_words_filter_it(tab, page):
    tab.open(page)
    before = tab.run(f"({SHOWN_ROWS})({OWN})")
    head = f"{OWN}.querySelectorAll('.sort')[1]"

    def means() -> list[float]:
        return [float(re.match(r"[\d.]+", row[1])[0]) for row in tab.run(f"({SHOWN_ROWS})({OWN})")]

    click(tab, head)
    assert means() == sorted(means(), reverse=True)
    assert tab.run(f"{head}.closest('th').getAttribute('aria-sort')") == "descending"
    tab.run(f"{head}.focus()")
    tab.press("Enter")
    assert means() == sorted(means())
    tab.press("Enter")
    assert tab.run(f"({SHOWN_ROWS})({OWN})") == before
    tab.run(f"{OWN}.parentElement.querySelector('input').focus()")
    tab.tell("Input.insertText", text="mimet")
    assert [row[0] for row in tab.run(f"({SHOWN_ROWS})({OWN})")] == ["Mimetic"]


def test_numbers_of_every_form_are_in_order_and_what_is_missing_comes_last(tab, page):
    tab.open(page)
    texts = ["–", "−2.5 [−3, −1]", "1,281,167", "< 0.001", "+0.50", "12.0 ± 0.3†", "9"]
    rows = "".join(f"<tr><td>{text}</td></tr>" for text in texts)
    tab.run(f"document.body.insertAdjacentHTML('beforeend', `<table id=try><tbody>{rows}</tbody></table>`)")
    order = "ordered([...document.getElementById('try').rows], 0, %s).lines.map((row) => row.innerText)"
    up = ["−2.5 [−3, −1]", "< 0.001", "+0.50", "9", "12.0 ± 0.3†", "1,281,167"]
    assert tab.run(order % "false") == [*up, "–"]
    assert tab.run(order % "true") == [*up[::-1], "–"]


COPIED = "navigator.clipboard.writeText = (text) => { window.copied = text; }; window.copied = null; undefined"


def copy_as(tab: Browser, table: str, name: str) -> str:
    tab.run(COPIED)
    tab.run(
        f"[...{table}.parentElement.querySelectorAll('button')].find((one) => one.textContent === '{name}').click()"
    )
    tab.until("window.copied !== null")
    return tab.run("window.copied")


def test_a_whole_table_is_copied_as_the_command_writes_it_and_a_filtered_one_as_it_is_seen(tab, page, folder):
    own = build(load([folder]))
    tab.open(page)
    for name, write in (("LaTeX", to_latex), ("Markdown", to_markdown), ("CSV", to_csv)):
        assert copy_as(tab, OWN, name) == write(own)
    tab.open(page, part="#row=Mimetic&row=Imp.-3&dataset=digits")
    label = tab.run(f"{OWN}.querySelector('thead th:not([hidden])').innerText")
    lines = list(csv.reader(io.StringIO(copy_as(tab, OWN, "CSV"))))
    assert [line[0] for line in lines] == ["", "Mimetic", "Imp.-3"]
    assert lines[0][1].startswith(label)
    assert {row: float(cell.split()[0]) for row, cell, *_ in lines[1:]} == {
        row: round(own.cells[row, "digits"].ours.mean, 1) for row in ("Mimetic", "Imp.-3")
    }
    assert copy_as(tab, OWN, "LaTeX").count(r"\\") == 3


@pytest.mark.skipif(not shutil.which("pdflatex"), reason="needs pdflatex")
def test_latex_of_any_table_compiles(tab, page, tmp_path):
    tab.open(page)
    text = copy_as(tab, "document.querySelector('table.runs')", "LaTeX")
    (tmp_path / "a.tex").write_text(
        rf"\documentclass{{article}}\usepackage{{booktabs}}\begin{{document}}{text}\end{{document}}".replace(
            "{%", "{\n%"
        )
    )
    done = subprocess.run(["pdflatex", "-halt-on-error", "a.tex"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:]


def choose(tab: Browser, field: str, value: str) -> None:
    tab.run(
        f"form.{field}.value = {value!r}; form.{field}.dispatchEvent(new Event('change', {{bubbles: true}})); undefined"
    )
    tab.until(f"new URLSearchParams(location.hash.slice(1)).get({field!r}) === {value!r}")


def test_gains_follow_the_chosen_baseline_and_metric(tab, page, records):
    tab.open(page)
    choose(tab, "baseline", "Imp.-3")
    choose(tab, "metric", "best")
    tops: dict[str, dict[int, float]] = {"Mimetic": {}, "Imp.-3": {}}
    for record in records:
        if record["spec"]["dataset"]["name"] == "digits" and record["row"] in tops:
            tops[record["row"]][record["spec"]["seed"]] = max(epoch["test_top1"] for epoch in record["history"])
    gain = statistics.mean(value - tops["Imp.-3"][seed] for seed, value in tops["Mimetic"].items())
    shown = tab.run("document.querySelector('[data-dataset=digits] .forest [data-row=Mimetic]').innerText")
    assert f"{gain:+.2f}".replace("-", "−") in shown
    assert "best epoch" in tab.run("document.querySelector('[data-gains]').innerText")
    tab.run("form.reset()")
    tab.until("document.querySelector('[data-gains] .forest').innerText.includes('minus Kaiming uniform')")


def test_sliders_show_the_map_of_their_layer_and_epoch(tab, mapped):
    shares = read_maps(mapped.parent, recorded("Mimetic")).maps_ELHNN[1, 2, 0].astype(float)
    octaves = np.log2((shares * len(shares)).clip(1 / 16, 16))
    levels = ((octaves + 4) / 8 * 15).round()
    tab.open(mapped)
    tab.run("document.querySelector('.maps').closest('details').open = true")
    element = "document.querySelector('.map')"
    tab.run(f"{element}.style.width = '256px'; {element}.scrollIntoView()")
    slide(tab, "layer", 3)
    slide(tab, "epoch", 1)
    assert tab.run("[...document.querySelectorAll('.sliders output')].map((one) => one.innerText)") == ["3", "3"]
    pixels = np.asarray(picture_of(tab, element))[2::4, 2::4]
    expected = matplotlib.colormaps["viridis"](levels / 15)[..., :3] * 255
    assert np.abs(pixels - expected).max() <= 2


def test_a_chart_gets_a_logarithmic_scale_where_all_is_above_0(tab, page):
    tab.open(page)
    show_chart(tab)
    choose(tab, "scale", "log")
    tab.until("drawn[0].plots[0].plot.y_range.start > 0 && drawn[0].plots[0].plot.y_scale.type === 'LogScale'")
    tab.run("form.reset()")
    tab.until("drawn[0].plots[0].plot.y_scale.type === 'LinearScale'")


@pytest.mark.parametrize("kind", ["forest", "chart", "maps", "picture"])
def test_a_figure_is_downloaded_as_svg_and_printed_alone(tab, page, mapped, kind):
    tab.open(mapped if kind == "maps" else page)
    tab.until("!!window.Bokeh")
    figure = f"document.querySelector('.{kind}')"
    tab.run(f"for (let at = {figure}; at; at = at.parentElement) if (at.localName === 'details') at.open = true")
    tab.run(f"{figure}.scrollIntoView()")
    svg = ElementTree.fromstring(tab.run(f"svgOf({figure})"))
    words = " ".join("".join(each.itertext()) for each in svg.iter("{http://www.w3.org/2000/svg}text"))
    assert "Mimetic" in words
    assert len(list(svg.iter())) > 20
    tab.run("window.print = () => {}; undefined")
    tab.run(f"svgOf({figure}).then(printOnly)")
    pdf = base64.b64decode(tab.tell("Page.printToPDF", preferCSSPageSize=True)["data"])
    assert len(re.findall(rb"/Type\s*/Page\b", pdf)) == 1


def test_a_link_opened_anew_shows_the_same_view(tab, mapped):
    tab.open(mapped)
    tab.until("document.querySelectorAll('.sort').length")
    choose(tab, "baseline", "Mimetic")
    choose(tab, "scale", "log")
    click(tab, f"{OWN}.querySelector('.sort')")
    tab.run("document.querySelector('[name=row][value=Mimetic]').click()")
    tab.run("document.querySelector('.maps').closest('details').querySelector('summary').click()")
    slide(tab, "layer", 2)
    shown = (
        "document.querySelector('[data-gains]').innerText",
        "form.scale.value",
        "location.hash",
        f"({SHOWN_ROWS})({OWN})",
        "[...document.querySelectorAll('details[open]')].map((one) => one.id)",
        "getComputedStyle(document.querySelector('.map')).backgroundPosition",
        "[...document.querySelectorAll('.run')].filter((one) => !one.hidden).length",
    )
    view = f"[{', '.join(shown)}]"
    tab.until("location.hash.includes('layer.') && location.hash.includes('open=')")
    seen, fragment = tab.run(view), tab.run("location.hash")
    tab.open(mapped, part=fragment)
    tab.until("document.querySelector('[data-gains]').innerText.includes('minus Mimetic')")
    assert tab.run(view) == seen
    assert "0% 0%" not in seen[5]


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
