"""Static pages of what the records of studies say: `python -m analysis.report`.

A page for each study, `report.html` in its folder, and an index beside the folders. A page is one file that needs no
other and no network: answer, main table, gains, accuracy, curves, attention, limits. The same records give the same
bytes.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from vitinit.analysis import command, frame
from vitinit.analysis.pages.render import OWN, page
from vitinit.analysis.registry import refuse
from vitinit.analysis.tables import reading
from vitinit.analysis.tables.contrasts import of_contrasts
from vitinit.analysis.tables.registry import build, names
from vitinit.analysis.tables.render import template, to_part
from vitinit.analysis.tables.shared import check_baseline
from vitinit.analysis.tables.table import Table
from vitinit.initializers.errors import VitinitError

if TYPE_CHECKING:
    from markupsafe import Markup
    from matplotlib.figure import Figure

FILE = "report.html"
FIRST = ("differences", "forest", "accuracy")
"""Figures that are open, in this order; others unfold."""
LAST = ("attention", "cka")
"""Beginnings of figures behind all others."""
MOST_BYTES = 1_400_000
"""Limit of the figures of a page."""


@dataclass(frozen=True)
class Answer:
    """Words of a study's page."""

    title: str
    question: str
    paragraphs: list[str]
    limits: list[str]


@dataclass(frozen=True)
class Drawn:
    """Figures of one kind, as SVG."""

    name: str
    caption: str
    pictures: list[Markup]


@dataclass
class Page:
    """Facts of a study that a template shows."""

    study: frame.Study
    answer: Answer
    tables: list[Table]
    figures: list[Drawn] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    """Figures for which there is no room."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    description = "Write an HTML page for each study, with its answer, tables, figures and limits, and an index."
    parser = command.parser("vitinit.analysis.report", description, FILE)
    args = parser.parse_args(arguments)
    return command.guarded(lambda: _run(args))


def _run(args: argparse.Namespace) -> None:
    from vitinit.analysis.figures import style

    found = frame.load_all(args.results, args.study)
    studies = [study for study in found if study.contents.done]
    if not studies:
        found[0].require_runs()
    check_baseline(args.baseline, studies)
    style.set_defaults()
    root: Path = args.out or (studies[0].home if args.study else frame.home(studies[0].folders))
    broken: list[VitinitError] = []
    pages = []
    for study in found:
        if study not in studies:
            command.say([f"Study {study.name}: left out, no finished run"])
            continue
        shown = _page(study, args.baseline if args.baseline in study.rows else None, broken)
        pages.append(shown)
        folder = command.folder(root if args.study else root / study.name)
        _write(folder / FILE, page=shown, index="" if args.study else f"../{FILE}")
    if not args.study:
        _write(root / FILE, pages=pages)
    refuse(broken)


def _write(path: Path, **values: object) -> None:
    text = template("report.html.j2", Path(__file__).parent, part=_part, inline=_inline, file=FILE, **values)
    command.write(path, text)
    command.say([f"wrote {path}"])


def _page(study: frame.Study, baseline: str | None, broken: list[VitinitError]) -> Page:
    """Gather the page of a study; errors in single tables and figures are added to `broken`."""
    tables = []
    for name in names(study):
        try:
            tables.append(build(study, name, baseline=baseline))
        except VitinitError as error:
            broken.append(error)
    if not tables:
        refuse(broken)
    result = Page(study, _answer(study, tables), tables)
    size = 0
    for drawn in _figures(study, baseline, broken):
        size += sum(len(picture.encode()) for picture in drawn.pictures)
        if size <= MOST_BYTES:
            result.figures.append(drawn)
        else:
            result.left_out.append(drawn.name)
            size -= sum(len(picture.encode()) for picture in drawn.pictures)
    return result


def _answer(study: frame.Study, tables: list[Table]) -> Answer:
    """Take title, question, answer and limits from the study's page; without contrasts, read the main table."""
    main_table, named = tables[0], next((table for table in tables if of_contrasts(table)), None)
    missing = reading.without_numbers(study)
    own = any((folder / study.name / OWN).is_file() for folder in study.folders)
    try:
        text = page(study)
    except VitinitError:  # the words are those of other records, such as the committed ones beneath one's own
        own, text = False, f"# {study.name}\n\n\n\n"
    title, question, answer, *_ = (part.strip() for part in text.split("\n\n"))
    limits = re.search(r"^## Limits\n+(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    lines = [line.removeprefix("- ") for line in limits[1].splitlines() if line.strip()] if limits else []
    chooses = set(study.runs["split"]) == {"val"}
    if not (own or named or chooses):
        return Answer(title.removeprefix("# "), question, reading.sentences(main_table, named), missing + lines)
    return Answer(title.removeprefix("# "), question, answer.splitlines(), missing + lines)


def _figures(study: frame.Study, baseline: str | None, broken: list[VitinitError]) -> Iterator[Drawn]:
    """Draw what the records allow; of a study on validation images, which only chooses, accuracy alone."""
    import matplotlib.pyplot as plt

    from vitinit.analysis.curves.registry import CURVES
    from vitinit.analysis.figures.registry import FIGURES

    chooses = set(study.runs["split"]) == {"val"}
    for drawing in sorted([*FIGURES.entries(), *CURVES.entries()], key=lambda drawing: _place(drawing.name)):
        if chooses and drawing.name != "accuracy":
            continue
        try:
            figures = drawing.figures(study, baseline)
        except VitinitError as error:
            broken.append(error)
            continue
        if figures:
            yield Drawn(drawing.name, drawing.caption, [_svg(figure.figure) for figure in figures.values()])
        for figure in figures.values():
            plt.close(figure.figure)


def _part(table: Table) -> Markup:
    from markupsafe import Markup

    return Markup(to_part(table))


def _place(name: str) -> int:
    if name in FIRST:
        return FIRST.index(name)
    return len(FIRST) + name.startswith(LAST)


def _svg(figure: Figure) -> Markup:
    """Return a figure as part of a page: transparent, black text and lines in the page's own colour."""
    from markupsafe import Markup, escape

    from vitinit.analysis.figures import style

    title = " ".join(figure.get_suptitle().replace(r"\$", "$").split())
    text = style.to_svg(figure)
    text = re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    text = re.sub(r'<g id="[A-Za-z0-9]+_\d+"', "<g", text)  # matplotlib numbers anew in each figure
    text = re.sub(r"(?<=: )#(000000|444444)\b", "currentColor", text)
    return Markup(text.replace("<svg ", f'<svg role="img" aria-label="{escape(title)}" ', 1))


def _inline(text: str) -> Markup:
    """Render the Markdown that pages use within a paragraph; links stay as their text."""
    from markupsafe import Markup, escape

    html = str(escape(re.sub(r"(?<!\\)\[([^\]]+)\]\([^)]*\)", r"\1", text)))
    html = re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", html)
    html = re.sub(r"`(.+?)`", r"<code>\1</code>", html)
    return Markup(re.sub(r"(?<!\w)\*(\S.*?)\*", r"<i>\1</i>", re.sub(r"\\([^\w\s*])", r"\1", html)).replace("\\*", "*"))


if __name__ == "__main__":
    sys.exit(main())
