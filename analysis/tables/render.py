"""A table as text: LaTeX, Markdown, CSV, a part of a page, and on a terminal. The same records give the same bytes."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitinit.analysis.tables.table import Table
from vitinit.analysis.text import count, escape_latex, escape_markdown, one_line, p_equals, signed
from vitinit.benchmark.records.export import csv_text
from vitinit.initializers.errors import printable

if TYPE_CHECKING:
    from jinja2 import Environment
    from pandas.io.formats.style import Styler

TEMPLATES = Path(__file__).parent / "templates"
PRINTED = {"cifar": "CIFAR-", "svhn": "SVHN", "imagenet": "ImageNet"}
"""Beginnings of datasets' names in LaTeX."""
COLUMN, TEXT, PAGE = 52, 80, 48
"""Letters that fit into a column of a two-column article, and into its text; rows that fit on a page."""
BRACKETS: dict[str, Any] = {
    **{"block_start_string": "((*", "block_end_string": "*))"},
    **{"variable_start_string": "(((", "variable_end_string": ")))"},
    **{"comment_start_string": "((=", "comment_end_string": "=))"},
}
"""Delimiters of templates for HTML, whose style sheets and scripts have braces."""
FITTED = r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%"


def to_latex(table: Table, notes: bool = False) -> str:
    """A floating table, as wide as the text where a column is too narrow; a longtable where a page is too short.

    All notes are comments.
    """
    texts = [table.texts[head].tolist() for head in table.heads]
    heads = ["", *(part or label for label, part in table.heads)]
    lines = zip(heads, [table.texts.index.tolist(), *texts], strict=True)
    width = sum(max(map(len, [_printed(table, head), *cells])) + 2 for head, cells in lines)
    long = len(table.texts) > PAGE
    styler = _styled(table, lambda text: escape_latex(_printed(table, text)), "textbf:--rwrap;")
    latex = styler.to_latex(
        hrules=True,
        environment="longtable" if long else "table" if width <= COLUMN else "table*",
        position=None if long else "tbp",
        position_float=None if long else "centering",
        column_format="@{}l" + "".join("c" if {"✓", "✗"} & set(cells) else "r" for cells in texts) + "@{}",
        multicol_align="c",
        caption=escape_latex(_printed(table, table.caption)),
        label=f"tab:{table.name}",
    )
    needs = "booktabs and longtable, and a page of one column" if long else "booktabs"
    if long:
        latex = latex.replace(r"\begin{longtable}", "{\\small\n\\begin{longtable}") + "}\n"
    else:
        latex = latex.replace("\\centering\n", "\\centering\n\\small\n")
        before, after = "\\smallskip\n", ""
        if width > TEXT:
            needs, before, after = "booktabs and graphicx", f"{before}{FITTED}\n", "}"
        latex = latex.replace(r"\begin{tabular}", rf"{before}\begin{{tabular}}")
        latex = latex.replace(r"\end{tabular}", rf"\end{{tabular}}{after}")
    if styler.columns.nlevels > 1:  # a rule below each label and above its parts
        labels, rules = [label for label, _ in table.heads], ""
        for label in dict.fromkeys(labels):
            first = labels.index(label) + 2
            rules += rf"\cmidrule(lr){{{first}-{first + labels.count(label) - 1}}}"
        latex = latex.replace("\\\\\n", f"\\\\\n{rules}\n", 1)
    comments = [f"Written by `python -m analysis.tables` from the records of study {table.study.name}; needs {needs}."]
    return "".join(f"% {printable(line)}\n" for line in [*comments, *table.notes]) + latex


def to_part(table: Table) -> str:
    """The table alone, as a part of a page that scrolls and sorts it."""
    styler = _styled(table, escape, "font-weight: bold").set_uuid(re.sub(r"\W", "-", table.name))
    html = styler.set_caption(escape(table.caption)).to_html(table_attributes='class="sort"')
    label = escape(table.caption, quote=True)
    return f'<div class="scroll" tabindex="0" role="region" aria-label="{label}">\n{html}</div>'


def to_markdown(table: Table, notes: bool = False) -> str:
    """A pipe table."""
    labels = [label for label, _ in table.heads]
    heads = [part if label in ("", *labels[:at]) else label for at, (label, part) in enumerate(table.heads)]
    lines = [["", *map(escape_markdown, heads)], ["---"] + ["--:"] * len(table.heads)]
    for row, *line in table.texts.itertuples(name=None):
        texts = zip(table.heads, map(escape_markdown, line), strict=True)
        bold = [f"**{text}**" if (row, head) in table.bold else text for head, text in texts]
        lines.append([escape_markdown(row), *bold])
    below = ["", *(f"- {escape_markdown(note)}" for note in table.notes)] if notes else []
    pipes = [f"| {' | '.join(line)} |" for line in lines]
    return "\n".join([f"{escape_markdown(table.caption)}\n", *pipes, *below, ""])


def to_csv(table: Table, notes: bool = False) -> str:
    """One line per cell with all its numbers, to ten digits: the last ones depend on the order of summation."""
    return csv_text(table.numbers, float_format="%.10g", lineterminator="\n")


def to_terminal(table: Table, width: int) -> list[str]:
    """Lines of plain text: as many columns beside each other as fit into the width; a bold one has an asterisk."""
    import pandas as pd

    marked: Any = table.texts.copy()
    for where in table.bold:
        marked.loc[where] += "*"
    texts = _flat(marked).map(printable).rename(printable).rename(printable, axis=1)
    with pd.option_context("display.unicode.east_asian_width", True):
        return ["", *(line.rstrip() for line in texts.to_string(line_width=width).splitlines()), ""]


def _flat(texts: Any) -> Any:
    """Return the texts, with one line of heads where no column has parts, or no label."""
    for level in (0, 1):
        if not any(head[level] for head in texts.columns):
            return texts.droplevel(level, axis=1)
    return texts


def _styled(table: Table, show: Callable[[Any], str], bold: str) -> Styler:
    """Return the texts made safe for a format, with a style for bold ones."""
    texts = _flat(table.texts)
    styles = texts.copy()
    for place, head in enumerate(table.heads):
        styles.isetitem(place, [bold if (row, head) in table.bold else "" for row in texts.index])
    styler = texts.style.format(show).format_index(show, axis=0).format_index(show, axis=1)
    return styler.apply(lambda _: styles, axis=None)


def _printed(table: Table, text: str) -> str:
    """Name datasets as papers do: `CIFAR-10 (5,000)` for `cifar10[5000]`."""
    for column in sorted(table.study.columns, key=len, reverse=True):
        parts = re.sub(r"\[(.*)\]", r" (\1)", column)
        name = re.sub(r"(?<=\()[0-9]{4,}", lambda found: f"{int(found[0]):,}", parts)
        for beginning, printed in PRINTED.items():
            name = re.sub(rf"^{beginning}(?![a-z-])", printed, name)
        text = text.replace(column, name)
    return text


FORMATS: dict[str, tuple[str, Callable[[Table, bool], str]]] = {
    "latex": ("tex", to_latex),
    "markdown": ("md", to_markdown),
    "csv": ("csv", to_csv),
}
"""By name: the file's ending, and what writes it."""


def template(name: str, folder: Path = TEMPLATES, **values: Any) -> str:
    """Fill in a template of a folder, or of this package; what it prints is made harmless in HTML, or in text."""
    shown, options = (one_line, {"autoescape": True} | BRACKETS) if ".html." in name else (printable, {})
    environment = templates(folder, finalize=lambda value: shown(value) if type(value) is str else value, **options)
    return environment.get_template(name).render(**values)


def templates(*folders: Path, **options: Any) -> Environment:
    """Return what fills in the templates of these folders, which may come from somebody else."""
    from jinja2 import FileSystemLoader, StrictUndefined
    from jinja2.sandbox import SandboxedEnvironment

    loader, strict = FileSystemLoader(folders), StrictUndefined
    environment = SandboxedEnvironment(
        loader=loader, undefined=strict, trim_blocks=True, keep_trailing_newline=True, **options
    )
    environment.filters |= {"count": count, "line": one_line, "p": p_equals, "signed": signed}
    return environment
