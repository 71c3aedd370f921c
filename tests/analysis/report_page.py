"""Reports and their elements, for the tests of the report."""

from __future__ import annotations

import base64
import json
import shutil
import zlib
from html.parser import HTMLParser
from pathlib import Path

from synthetic_records import done, failed, skipped, write

from vitinit.analysis.report.__main__ import main

REFERENCE = Path(__file__).parents[2] / "results/reference"
VOID = {"meta", "link", "br", "img"}


class Page(HTMLParser):
    """Elements with their attributes and the text in them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.texts: list[str] = []
        self._open: list[int] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.handle_data(" ")
        self.elements.append((tag, dict(attrs)))
        self.texts.append("")
        if tag not in VOID:
            self._open.append(len(self.elements) - 1)

    def handle_endtag(self, tag):
        while self._open and self.elements[self._open.pop()][0] != tag:
            pass

    def handle_data(self, data):
        for index in self._open:
            self.texts[index] += data

    def find(self, tag: str, **attributes: str) -> list[tuple[dict[str, str], str]]:
        return [
            (attrs, " ".join(text.split()))
            for (name, attrs), text in zip(self.elements, self.texts, strict=True)
            if name == tag and attributes.items() <= attrs.items()
        ]


def write_report(out: Path, *arguments: str | Path) -> str:
    assert main([*map(str, arguments), "--out", str(out)]) == 0
    return out.read_text(encoding="utf-8")


def unpacked(text: str) -> str:
    return zlib.decompress(base64.b64decode(text)).decode()


EVIL = """<script>document.title='ran'</script><img src=x onerror=alert(1)> "'&"""


def hostile_report(root: Path) -> Path:
    """Two studies in which every free text is an attack, and a run failed and another one was skipped."""
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


def few_records(root: Path) -> list[dict]:
    """Three rows of the committed study `small`, on both datasets at three seeds."""
    (root / "small").mkdir(parents=True)
    shutil.copy(REFERENCE / "small" / "LAYOUT", root / "small")
    found = []
    for path in sorted((REFERENCE / "small").glob("*.json")):
        record = json.loads(path.read_text(encoding="utf-8"))
        if record["row"] in ("Kaiming uniform", "Mimetic", "Imp.-3"):
            shutil.copy(path, root / "small")
            found.append(record)
    return found
