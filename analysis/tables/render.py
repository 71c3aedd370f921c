"""A table as text: LaTeX, Markdown, CSV, a part of a page, and on a terminal. The same records give the same bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from jinja2.sandbox import SandboxedEnvironment

from vitinit.analysis.text import escape_latex, escape_markdown, listed, p_equals, signed
from vitinit.benchmark.records.export import csv_text
from vitinit.initializers.errors import count, plain, printable

if TYPE_CHECKING:
    from vitinit.analysis.tables.table import Table

TEMPLATES = Path(__file__).parent / "templates"
COLUMN, TEXT, LABEL, PAGE = 52, 84, 40, 48
"""Letters that fit into a column of a two-column article, into its text, and into a line of a row's label; rows that
fit on a page."""
BRACKETS: dict[str, Any] = {
    "block_start_string": "((*",
    "block_end_string": "*))",
    "variable_start_string": "(((",
    "variable_end_string": ")))",
    "comment_start_string": "((=",
    "comment_end_string": "=))",
}
"""Delimiters of templates for HTML, whose style sheets and scripts have braces."""


def _filled(table: Table, ending: str, **values: Any) -> str:
    """Fill in the template of a format; heads have one line where no column has a label, or no parts."""
    labels, parts = zip(*table.heads, strict=True)
    lines = [
        (row, [(text, (row, head) in table.bold) for head, text in zip(table.heads, texts, strict=True)])
        for row, *texts in table.texts.itertuples(name=None)
    ]
    counts = list(Counter(labels).items()) if any(labels) else []
    values |= {"table": table, "lines": lines, "labels": counts, "parts": parts if any(parts) else ()}
    return template(f"table.{ending}.j2", **values)


def to_latex(table: Table, notes: bool = False) -> str:
    """Return LaTeX: a float, as wide as the text where a column is too narrow, or a longtable of more than a page.

    Columns that do not fit beside each other stand below each other. Notes are comments.
    """
    first = width = min(LABEL, max(map(len, table.texts.index))) + 2
    blocks: list[list[tuple[str, str]]] = [[]]
    for _, group in groupby(table.heads, itemgetter(0)):
        heads = list(group)
        texts = [[head[1] or head[0], *table.texts[head]] for head in heads]
        more = sum(max(map(len, column)) + 2 for column in texts)
        if blocks[-1] and width + more > TEXT:
            blocks.append([])
            width = first
        blocks[-1] += heads
        width += more
    wide = len(blocks) > 1 or width > COLUMN
    environment = "longtable" if len(table.texts) > PAGE else "table*" if wide else "table"
    known = {"environment": environment, "long": first > LABEL, "shown": escape_latex}
    parts = [_filled(replace(table, texts=table.texts[heads]), "tabular.tex", **known) for heads in blocks]
    return _filled(table, "tex", tabulars=parts, **known)


def to_part(table: Table) -> str:
    """Return HTML for a page that scrolls and sorts it."""
    return _filled(table, "html")


def to_markdown(table: Table, notes: bool = False) -> str:
    """Return a pipe table."""
    labels = [label for label, _ in table.heads]
    heads = [part if label in ("", *labels[:at]) else label for at, (label, part) in enumerate(table.heads)]
    return _filled(table, "md", heads=heads, notes=notes)


def to_csv(table: Table, notes: bool = False) -> str:
    """Return a line per cell with all numbers, to ten digits: the last ones depend on the order of summation."""
    return csv_text(table.frame, float_format="%.10g", lineterminator="\n")


def to_terminal(table: Table, width: int) -> list[str]:
    """Return lines of plain text, split by columns to fit the width; bold is an asterisk."""
    marked: Any = table.texts.copy()
    for where in table.bold:
        marked.loc[where] += "*"
    for level in (0, 1):
        if not any(head[level] for head in table.heads):
            marked = marked.droplevel(level, axis=1)
    texts = marked.map(printable).rename(printable).rename(printable, axis=1)
    with pd.option_context("display.unicode.east_asian_width", True):
        return ["", *(line.rstrip() for line in texts.to_string(line_width=width).splitlines()), ""]


FORMATS: dict[str, tuple[str, Callable[[Table, bool], str]]] = {
    "latex": ("tex", to_latex),
    "markdown": ("md", to_markdown),
    "csv": ("csv", to_csv),
}
"""By name: the file's ending, and what writes it."""


def template(name: str, folder: Path = TEMPLATES, shown: Callable[[str], str] = printable, **values: Any) -> str:
    """Fill in a template of a folder, or of this package; what it prints is made harmless in HTML, or by `shown`."""
    html = ".html." in name
    options = {} if name.endswith((".txt.j2", ".md.j2")) else BRACKETS
    environment = _environment(folder, plain if html else shown, autoescape=html, **options)
    return environment.get_template(name).render(**values)


@cache
def _environment(folder: Path, shown: Callable[[str], str], **options: Any) -> Environment:
    return templates(folder, finalize=lambda value: shown(value) if type(value) is str else value, **options)


def templates(*folders: Path, **options: Any) -> Environment:
    """Return what fills in the templates of these folders, which may come from somebody else."""
    loader, strict = FileSystemLoader(folders), StrictUndefined
    environment = SandboxedEnvironment(
        loader=loader, undefined=strict, trim_blocks=True, keep_trailing_newline=True, **options
    )
    environment.filters |= {"count": count, "listed": listed, "line": plain, "p_equals": p_equals, "signed": signed}
    environment.filters |= {"md": escape_markdown, "printable": printable}
    return environment
