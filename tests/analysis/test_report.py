"""The report: one page that needs nothing else, says what the records say, and works in a real browser."""

from __future__ import annotations

import base64
import io
import json
import re
import shutil
import subprocess
from collections import Counter
from html import escape
from pathlib import Path
from urllib.parse import quote

import pytest
from browser import CHROMIUM
from PIL import Image
from report_page import REFERENCE, Page, write_report
from synthetic_records import done, failed, skipped, write

from analysis.frame import load
from analysis.report import __main__ as report
from tests.processes import PATIENCE

EVIL = """<script>document.title='ran'</script><img src=x onerror=alert(1)> "'&"""


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("report") / "report.html"
    write_report(out, "--results", REFERENCE, "--study", "small")
    return out


@pytest.fixture(scope="module")
def hostile(tmp_path_factory) -> Path:
    """Two studies in which every free text is an attack, and a run failed and another one was skipped."""
    root = tmp_path_factory.mktemp("hostile")
    environment = {"commit": EVIL, "dirty": True, "packages": EVIL, EVIL: [EVIL]}
    write(root, done("Mimetic", (10.0,), label=EVIL, environment=environment), failed("Imp.-3", EVIL))
    write(
        root,
        skipped("Imp.-5", EVIL),
        done("Kaiming uniform", (7.0,), maps=[[[0.1] * 3] * 3], environment={"dirty": [1]}),
    )
    write(root, done("Trunc normal", (5.0, 20.0), study="other", dataset="digits"))
    (root / "small" / "<b>.json").write_text("{}")
    write_report(root / "report.html", "--results", root)
    return root / "report.html"


def test_every_run_is_on_the_page_with_the_numbers_of_its_record(small):
    page = Page(small.read_text(encoding="utf-8"))
    records = load([REFERENCE], "small").contents.done
    shown = {re.search(r"[0-9a-f]{16}", text).group(): text for _, text in page.find("tr", **{"class": "run"})}
    assert shown.keys() == records.keys()
    for run_id, record in records.items():
        cells = f"{record.spec.seed} {record.top1:.2f} {record.best[1]:.2f} {record.seconds:.1f}"
        words = shown[run_id].split()
        assert Counter(cells.split()) <= Counter(words), run_id
        assert {record.environment["commit"][:10], "cpu", record.weights} <= set(words)
        assert all(f"{epoch.train_loss:.4f}" in words for epoch in record.history)
        assert f"vitinit reproduce {run_id}" in shown[run_id]
    text = small.read_text(encoding="utf-8")
    assert all(record.dataset.checksum in text for record in records.values())
    assert "vitinit run small" in text
    curves = [attrs["points"].split() for attrs, _ in page.find("polyline") if "stroke" not in attrs]
    assert sorted(map(len, curves)) == sorted(len(record.history) for record in records.values())


def test_epochs_that_were_not_evaluated_are_on_the_page_without_test_numbers(tmp_path):
    (tmp_path / "table4-small").mkdir()
    for run_id in sorted(load([REFERENCE], "table4-small").contents.done)[:2]:
        shutil.copy(REFERENCE / "table4-small" / f"{run_id}.json", tmp_path / "table4-small")
    write_report(tmp_path / "report.html", "--results", tmp_path)
    page = Page((tmp_path / "report.html").read_text(encoding="utf-8"))
    shown = {re.search(r"[0-9a-f]{16}", text).group(): text for _, text in page.find("tr", **{"class": "run"})}
    done = load([tmp_path], "table4-small").contents.done
    assert shown.keys() == done.keys()
    assert len(done) == 2
    for run_id, record in done.items():
        assert [epoch.test_top1 is None for epoch in record.history] == [True, True, True, True, False]
        words = shown[run_id].split()
        assert words.count("–") == 8
        assert f"{record.history[-1].test_loss:.4f}" in words


def test_the_page_needs_no_other_file_and_its_links_lead_somewhere(small, hostile):
    for path in (small, hostile):
        page = Page(path.read_text(encoding="utf-8"))
        ids = [attrs["id"] for _, attrs in page.elements if "id" in attrs]
        assert len(ids) == len(set(ids))
        for tag, attrs in page.elements:
            for name in ("src", "href"):
                address = attrs.get(name, "data:")
                assert address.startswith("data:") or (address[0] == "#" and address[1:] in ids), (tag, address)
        assert not re.search(r"url\(|@import|https?:", path.read_text(encoding="utf-8").partition("<body>")[0])
    figures = [attrs for attrs, _ in Page(small.read_text(encoding="utf-8")).find("img")]
    assert len(figures) >= 2
    for attrs in figures:
        image = Image.open(io.BytesIO(base64.b64decode(attrs["src"].partition("base64,")[2])))
        assert (image.format, image.width) == ("WEBP", 880)
        assert len(attrs["alt"]) > 20


def test_text_of_records_is_never_markup(hostile):
    text = hostile.read_text(encoding="utf-8")
    page = Page(text)
    kinds = [attrs.get("type") for attrs, _ in page.find("script")]
    assert kinds == [None if kind is None else "application/json" for kind in kinds]
    assert kinds.count(None) == 2, "the page's own, and Bokeh"
    assert all(attrs["src"].startswith("data:") for attrs, _ in page.find("img"))
    assert not any(name.startswith("on") for _, attrs in page.elements for name in attrs)
    assert EVIL in [shown for _, shown in page.find("option")]
    ((_, failure),) = [row for row in page.find("tr") if "RuntimeError" in row[1]]
    assert EVIL in failure
    ((_, skip),) = [row for row in page.find("tr") if " skipped " in row[1]]
    assert skip.endswith(f"skipped cifar10 Imp.-5 0 {EVIL}")
    assert any("<b>.json" in shown for _, shown in page.find("li"))
    assert {attrs["href"] for attrs, _ in page.find("a")} == {"#studies", "#study-small", "#study-other"}


def test_the_same_records_give_the_same_bytes(hostile, tmp_path):
    copy = shutil.copytree(hostile.parent, tmp_path / "moved")
    assert write_report(tmp_path / "again.html", "--results", copy) == hostile.read_text(encoding="utf-8")


def test_what_cannot_be_shown_is_one_line(tmp_path, capsys):
    write(tmp_path, done("Mimetic"), failed("Imp.-3", study="broken"))
    out = tmp_path / "new" / "report.html"
    assert report.main(["--results", str(tmp_path), "--study", "broken", "--out", str(out)]) == 2
    assert "holds no finished run; first reason: Imp.-3 failed: RuntimeError" in capsys.readouterr().err
    assert report.main(["--results", str(tmp_path), "--baseline", "Mimic", "--out", str(out)]) == 2
    assert "did you mean 'Mimetic'" in capsys.readouterr().err
    assert not out.exists()
    assert report.main(["--results", str(tmp_path), "--out", str(out)]) == 0
    assert "Study broken: left out, no finished run" in capsys.readouterr().out


CASES = [
    ("small", "", 36),
    ("small", "#dataset=digits", 18),
    ("small", "#dataset=digits&row=Mimetic", 3),
    ("small", "#row=Imp.-3", 6),
    ("small", "#row=unknown", 36),
    ("hostile", "", 3),
    ("hostile", f"#row={quote(EVIL)}", 1),
]
"""Page, fragment of its address, and how many runs are to be seen."""

PROBE = """<script>
const root = document.documentElement;
for (const fold of document.querySelectorAll("details")) fold.open = true;
const seen = (selector) => Array.from(document.querySelectorAll(selector)).filter((one) => one.checkVisibility());
parent.postMessage({
  address: location.href, width: innerWidth, beyond: root.scrollWidth - root.clientWidth,
  runs: seen(".run").length, datasets: seen("section td[data-dataset]").map((cell) => cell.dataset.dataset),
  title: document.title,
}, "*");
console.log("probed");
</script></body>"""

FRAMES = """<!DOCTYPE html><link rel="icon" href="data:,"><pre></pre><script>
const messages = [];
addEventListener("message", (event) => {
  messages.push(event.data);
  document.querySelector("pre").textContent = JSON.stringify(messages);
});
</script>"""


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")
def test_in_a_browser_as_wide_as_a_phone(small, hostile, tmp_path):
    """All pages at once, in frames: the window of a browser cannot be so narrow."""
    addresses = []
    frames = FRAMES
    for name, path in (("small", small), ("hostile", hostile)):
        text = path.read_text(encoding="utf-8").replace("</body>", PROBE)
        (tmp_path / f"{name}.html").write_text(text, encoding="utf-8")
    for name, fragment, _ in CASES:
        addresses.append((tmp_path / f"{name}.html").as_uri() + fragment)
        frames += f'<iframe width="360" height="800" style="border: 0" src="{escape(addresses[-1])}"></iframe>'
    (tmp_path / "frames.html").write_text(frames)
    options = "--headless --no-sandbox --disable-gpu --enable-logging=stderr --virtual-time-budget=5000 --dump-dom"
    command = [CHROMIUM, *options.split(), f"--user-data-dir={tmp_path / 'profile'}", tmp_path / "frames.html"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    printed = [line for line in run.stderr.splitlines() if "CONSOLE" in line]
    assert len(printed) == len(CASES), printed
    assert all("probed" in line for line in printed), printed
    ((_, content),) = Page(run.stdout).find("pre")
    found = {message["address"]: message for message in json.loads(content)}
    for address, (name, fragment, runs) in zip(addresses, CASES, strict=True):
        message = found[address]
        assert (message["width"], message["beyond"], message["runs"]) == (360, 0, runs), address
        assert message["title"].startswith("vitinit report: small")
        if "dataset=digits" in fragment:
            assert {"digits", "digits: top-1 (%)"} <= set(message["datasets"]), name
            assert all(label.partition(": ")[0] == "digits" for label in message["datasets"])
