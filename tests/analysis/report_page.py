"""Reports and their elements, for the tests of the report."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

from analysis.report.__main__ import main

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
