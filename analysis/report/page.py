"""The page itself, from what its sections show."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from vitinit.analysis.board import Entry
from vitinit.analysis.report.answer import seeds
from vitinit.analysis.report.choices import OWN
from vitinit.analysis.report.packing import packed
from vitinit.analysis.report.section import SPARK, Section
from vitinit.analysis.tables.render import template

TEMPLATES = Path(__file__).parent / "templates"
LIBRARY = ("bokeh.min.js", "bokeh-api.min.js")
"""Files of Bokeh that draw a chart from JavaScript."""
SHOWN = 8
"""So many values of one field are listed; `argv` may be another one in every run."""


def to_html(
    sections: Sequence[Section], lead: str | None = None, board: Sequence[tuple[str, Sequence[Entry]]] = ()
) -> str:
    """Render the page.

    Args:
        sections: One a study.
        lead: The study whose answer comes first; None: the result with most training.
        board: Tables of the board by title; see `analysis.board`.
    """
    from markupsafe import Markup

    sections = sorted(sections, key=lambda section: (section.study.name == lead, *section.weight), reverse=True)
    drawn = any(drawn.plots for section in sections for drawn in section.figures)
    return template(
        "report.html.j2",
        TEMPLATES,
        sections=sections,
        first=sections[0],
        rows=list(dict.fromkeys(row for section in sections for row in section.study.rows)),
        datasets=list(dict.fromkeys(column for section in sections for column in section.study.columns)),
        seeds=seeds,
        own=OWN,
        metrics={name: label for section in sections for name, label in section.metrics.items()},
        board=board,
        library=packed(_library()) if drawn else "",
        markup=Markup,
        spark=SPARK,
        shown=SHOWN,
    )


def _library() -> str:
    """The JavaScript of Bokeh."""
    folder = resources.files("bokeh") / "server" / "static" / "js"
    return "\n".join((folder / name).read_text(encoding="utf-8") for name in LIBRARY)
