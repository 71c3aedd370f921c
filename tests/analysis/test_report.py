"""The static report: its contract on records, and in a Chromium where there is one."""

import html
import json
import re
import shutil
import subprocess

import pytest

from tests.analysis.synthetic_records import done, failed, several, write
from vitinit.analysis.report import MOST_BYTES, main

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
EVIL = """<script>document.title='ran'</script><img src=x onerror=alert(1)> "'&"""
RUNS = {
    "Kaiming uniform": [(20.0, 40.0 + seed) for seed in range(3)],
    "Mimetic": [(30.0, 45.5 + seed) for seed in range(3)],
}


@pytest.fixture
def records(tmp_path):
    root = several(tmp_path / "records", RUNS)
    write(root, failed("Imp.-3", EVIL), done("Trunc normal", (5.0, 20.0), study="other", label=EVIL))
    return root


def test_a_page_a_study_and_an_index_that_need_nothing_else(records):
    assert main(["--results", str(records)]) == 0
    before = {path: path.read_bytes() for path in records.rglob("report.html")}
    assert before.keys() == {records / "small/report.html", records / "other/report.html", records / "report.html"}
    for content in before.values():
        text = content.decode()
        assert len(content) <= MOST_BYTES + 100_000
        assert len(re.findall("<(?:script|img)", text)) == 1, "what records say is text"
        addresses = re.findall(r'(?:href|src)="([^"]*)"', text)
        assert all(re.match(r"#|data:|(\.\./|\w+/)?report\.html$", address) for address in addresses)
    small = before[records / "small/report.html"].decode()
    places = [small.index(part) for part in ("<h1>", "46.5 ± 1.0", "<svg", ">Limits<", "Failed: ")]
    assert places == sorted(places)
    assert "&lt;script&gt;" in small
    assert main(["--results", str(records)]) == 0
    assert {path: path.read_bytes() for path in before} == before, "the same records, the same bytes"


MEASURE = """<script>addEventListener("load", () => {
const head = document.querySelectorAll("table.sort thead tr:last-child button")[1]; head.click();
const first = document.querySelector("table.sort tbody th").textContent; head.click();
document.title = JSON.stringify({wide: document.documentElement.scrollWidth, width: innerWidth, first,
last: document.querySelector("table.sort tbody th").textContent});
parent.postMessage(document.title, "*"); });</script>"""
FRAME = """<iframe src="page.html" width=%d height=900 style="border:0"></iframe>
<script>addEventListener("message", (event) => { document.title = event.data; });</script>"""


@pytest.mark.browser
@pytest.mark.parametrize("width", [390, 1440])
def test_in_a_browser_it_fits_and_sorts(records, tmp_path, width):
    assert main(f"--results {records} --study small --out {tmp_path}".split()) == 0
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    (tmp_path / "page.html").write_text(page.replace("</body>", f"{MEASURE}</body>"), encoding="utf-8")
    (tmp_path / "frame.html").write_text(FRAME % width, encoding="utf-8")
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom"]
    options += ["--virtual-time-budget=5000", "--window-size=1600,1000", (tmp_path / "frame.html").as_uri()]
    found = subprocess.run([str(CHROMIUM), *options], capture_output=True, text=True, check=True, timeout=120).stdout
    (title,) = re.findall("<title>(.*?)</title>", found)
    measured = json.loads(html.unescape(title))
    assert measured["wide"] <= measured["width"] == width, "nothing but tables and figures scrolls sideways"
    assert (measured["first"], measured["last"]) == ("Mimetic", "Imp.-3")
