"""Static pages of what the records of studies say: `python -m analysis.report`.

A page for each study, `report.html` in its folder, and an index beside the folders. A page is one file that needs no
other and no network: answer, main table, gains, accuracy, curves, attention, limits. The same records give the same
bytes.
"""

import re
from pathlib import Path
from typing import Any

from markupsafe import Markup, escape

from vitinit.analysis import command, frame
from vitinit.analysis.curves.registry import CURVES
from vitinit.analysis.figures import style
from vitinit.analysis.figures.drawing import drawn, finished
from vitinit.analysis.figures.registry import FIGURES
from vitinit.analysis.pages.render import has_own, page
from vitinit.analysis.tables import notes
from vitinit.analysis.tables.contrasts import of_contrasts
from vitinit.analysis.tables.registry import build, names
from vitinit.analysis.tables.render import template, to_part
from vitinit.initializers.errors import VitinitError, plain

FILE = "report.html"
FIRST = ("differences", "forest", "accuracy", "scaling")
"""Figures that are open, in this order; others unfold."""
LAST = ("attention", "cka")
"""Beginnings of figures behind all others."""
LONGEST = 4_000
"""Letters of a paragraph."""
MOST_BYTES = 1_400_000
"""Limit of the figures of a page."""


def run(
    results: command.ResultsOption = None,
    name: command.StudyOption = None,
    baseline: command.BaselineOption = None,
    out: command.OutOption = None,
) -> None:
    """Write an HTML page for each study, with its answer, tables, figures and limits, and an index."""
    studies = finished(results, name, baseline)
    broken: list[VitinitError] = []
    pages = [_page(study, studies, broken) for study in studies]
    for shown in pages:
        _write(shown["study"].out(out, "", bool(name)) / FILE, page=shown, index="" if name else f"../{FILE}")
    if not name:
        _write((out or frame.home(studies[0].folders)) / FILE, pages=pages)
    command.refuse(broken)


def _write(path: Path, **values: Any) -> None:
    values |= {"part": lambda table: Markup(to_part(table)), "inline": _inline, "file": FILE, "first": FIRST}
    command.write(path, template("report.html.j2", Path(__file__).parent, **values))
    command.say([f"wrote {path}"])


def _page(study: frame.Study, others: list[frame.Study], broken: list[VitinitError]) -> dict[str, Any]:
    """Return what the template shows of a study: tables, figures, and paragraphs of its page; errors go to `broken`.

    Without an answer by a person or by contrasts, the main table is read. Figures are those for which there is room; of
    a study that only chooses, accuracy alone.
    """
    tables = []
    for name in names(study):
        try:
            tables.append(build(study, name))
        except VitinitError as error:
            broken.append(error)
    if not tables:
        command.refuse(broken)
    tuning = set(study.runs["split"]) == {"val"}
    try:
        text = page(study, others)
    except VitinitError as error:
        broken.append(error)
        text = f"# {study.name}\n\n\n\n"
    title, question, answer, *_ = (part.strip() for part in text.split("\n\n"))
    paragraphs = answer.splitlines()
    if not (has_own(study) or tuning or any(map(of_contrasts, tables))):
        paragraphs = notes.sentences(tables[0])
    limits = re.findall("^- (.*)", text.partition("\n## Limits\n")[2].partition("\n## ")[0], re.MULTILINE)
    drawings = [FIGURES.get("accuracy")] if tuning else [*FIGURES.entries(), *CURVES.entries()]
    drawings.sort(key=lambda drawing: (*(drawing.name != name for name in FIRST), drawing.name.startswith(LAST)))
    figures, room = [], MOST_BYTES
    for drawing, grids in drawn(drawings, study, broken):
        pictures = [_svg(grid) for grid in grids.values()]
        room -= sum(map(len, pictures))
        if room < 0:
            break
        if pictures:
            figures.append((drawing.name, drawing.caption, pictures))
    return {
        "study": study,
        "tables": tables,
        "title": title.removeprefix("# "),
        "question": question,
        "paragraphs": paragraphs,
        "limits": limits,
        "figures": figures,
        "more": room < 0,
    }


def _svg(grid: style.Panels) -> Markup:
    """Return a figure as part of a page: transparent."""
    text = style.saved(grid, "svg", Date=None).decode()
    text = re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    text = re.sub(r'<g id="[A-Za-z0-9]+_\d+"', "<g", text)  # matplotlib numbers anew in each figure
    title = escape(" ".join(grid.figure.get_suptitle().split()))
    return Markup(text.replace("<svg ", f'<svg role="img" aria-label="{title}" ', 1))


def _inline(text: str) -> Markup:
    """Render the Markdown that pages use within a paragraph; links stay as their text."""
    text = re.sub(r"(?<!\\)\[([^\]]+)\]\([^)]*\)", r"\1", plain(text, LONGEST))  # patterns are quadratic
    html = str(escape(text))
    for pattern, tag in ((r"\*\*(.+?)\*\*", "b"), (r"`(.+?)`", "code"), (r"(?<![\w\\])\*(\S.*?)\*", "i")):
        html = re.sub(pattern, rf"<{tag}>\1</{tag}>", html)
    return Markup(re.sub(r"\\([^\w\s])", r"\1", html))


main = command.main_of(run, __name__)
