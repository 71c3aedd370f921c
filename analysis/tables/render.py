"""A table as text: LaTeX, Markdown, HTML, CSV, and on a terminal. The same records give the same bytes."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Sequence
from functools import cache
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitinit.analysis.tables.table import Table
from vitinit.analysis.text import count, escape_latex, escape_markdown, interval_text, one_line, p_equals, signed
from vitinit.initializers.errors import printable

if TYPE_CHECKING:
    import pandas as pd
    from jinja2 import Environment
    from pandas.io.formats.style import Styler
    from rich.table import Table as RichTable

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
GAP, HEAD = 3, 16
"""On a terminal: spaces in front of a column, and the width at which its label is broken."""
FITTED = r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%"
STYLE = """
body { font-family: sans-serif; font-size: 14px; margin: 2em; }
table { border-collapse: collapse; }
caption { text-align: left; padding-bottom: 0.6em; }
th, td { padding: 0.3em 0.8em; text-align: right; vertical-align: top; white-space: nowrap; }
th:first-child { text-align: left; }
thead tr:last-child th { border-bottom: 1px solid; }
ul { max-width: 70em; padding-left: 1.2em; }
"""


def to_latex(table: Table, notes: bool = False) -> str:
    """A floating table, as wide as the text where a column is too narrow; a longtable where a page is too short.

    All notes are comments.
    """
    texts = [table.texts[head].tolist() for head in table.heads]
    width = sum(max(map(len, cells)) + 2 for cells in [table.texts.index.tolist(), *texts])
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
        if width > TEXT:
            needs = "booktabs and graphicx"
            latex = latex.replace(r"\begin{tabular}", f"{FITTED}\n\\begin{{tabular}}")
            latex = latex.replace(r"\end{tabular}", r"\end{tabular}}")
    if styler.columns.nlevels > 1:
        latex = _ruled(latex, [label for label, _ in table.heads])
    comments = [f"Written by `python -m analysis.tables` from the records of study {table.study.name}; needs {needs}."]
    return "".join(f"% {printable(line)}\n" for line in [*comments, *table.notes]) + latex


def _ruled(latex: str, labels: list[str]) -> str:
    """Put a rule below each label and above its parts."""
    rules = []
    for label in dict.fromkeys(labels):
        first = labels.index(label) + 2
        rules.append(rf"\cmidrule(lr){{{first}-{first + labels.count(label) - 1}}}")
    head, line, rest = latex.partition("\\\\\n")
    return head + line + "".join(rules) + "\n" + rest


def to_html(table: Table, notes: bool = False) -> str:
    """A page of its own."""
    lines = [f"<li>{escape(note)}</li>" for note in table.notes] if notes else []
    below = ["<ul>", *lines, "</ul>"] if lines else []
    head = f'<meta charset="utf-8">\n<title>{escape(table.caption)}</title>\n<style>{STYLE}</style>'
    body = "\n".join([to_part(table), *below])
    return f'<!DOCTYPE html>\n<html lang="en">\n<head>\n{head}\n</head>\n<body>\n{body}\n</body>\n</html>\n'


def to_part(table: Table) -> str:
    """The table alone, as a part of a page that scrolls and sorts it."""
    styler = _styled(table, escape, "font-weight: bold").set_uuid(re.sub(r"\W", "-", table.name))
    html = styler.set_caption(escape(table.caption)).to_html(table_attributes='class="sort"')
    label = escape(table.caption, quote=True)
    return f'<div class="scroll" tabindex="0" role="region" aria-label="{label}">\n{html}</div>'


def to_markdown(table: Table, notes: bool = False) -> str:
    """A pipe table."""
    heads, seen = [""], set()
    for label, head in table.heads:
        heads.append(head if label in seen or not label else label)
        seen.add(label)
    lines = [[escape_markdown(head) for head in heads], ["---"] + ["--:"] * len(table.heads)]
    for row, *line in table.texts.itertuples(name=None):
        cells = [
            f"**{escape_markdown(text)}**" if (row, column) in table.bold else escape_markdown(text)
            for column, text in zip(table.heads, line, strict=True)
        ]
        lines.append([escape_markdown(row), *cells])
    below = ["", *(f"- {escape_markdown(note)}" for note in table.notes)] if notes else []
    pipes = [f"| {' | '.join(line)} |" for line in lines]
    return "\n".join([f"{escape_markdown(table.caption)}\n", *pipes, *below]) + "\n"


def to_csv(table: Table, notes: bool = False) -> str:
    """One line per cell with all its numbers, to ten digits: the last ones depend on the order of summation."""
    return table.numbers.to_csv(index=False, float_format="%.10g", lineterminator="\n")


def to_terminal(table: Table, width: int) -> list[RichTable]:
    """Tables for rich, one below another: as many columns in each as fit into the width."""
    from rich.cells import cell_len

    labels = min(width // 3, max(map(cell_len, table.texts.index)))
    panels: list[list[tuple[str, str]]] = []
    left = 0
    for label, part in table.heads:
        wide = max(map(cell_len, [part, *table.texts[label, part]]))
        wide = GAP + max(wide, min(cell_len(label), HEAD))
        if wide > left:
            panels.append([])
            left = width - labels
        panels[-1].append((label, part))
        left -= wide
    return [_panel(table, heads, labels) for heads in panels]


def _panel(table: Table, heads: Sequence[tuple[str, str]], labels: int) -> RichTable:
    from rich import box
    from rich.cells import cell_len
    from rich.table import Table as RichTable
    from rich.text import Text

    panel = RichTable(box=box.SIMPLE_HEAD, padding=(0, 0, 0, GAP), show_edge=False, pad_edge=False)
    panel.add_column("", max_width=labels, overflow="fold")
    before = ""
    for label, part in heads:
        wide = max(HEAD, *map(cell_len, table.texts[label, part]))
        lines = textwrap.wrap(printable(label), wide) if label != before else []
        head = Text("\n".join([*lines, part]).rstrip())
        panel.add_column(head, justify="right", vertical="bottom", no_wrap=True, min_width=cell_len(part))
        before = label
    for row in table.texts.index:
        texts = [(table.texts.loc[row, head], "bold" if (row, head) in table.bold else "") for head in heads]
        panel.add_row(Text(printable(row)), *(Text(printable(str(text)), style) for text, style in texts))
    return panel


def _flat(table: Table) -> pd.DataFrame:
    """Return the texts, with one line of heads where no column has parts, or no label."""
    for level in (0, 1):
        if not any(head[level] for head in table.heads):
            return table.texts.droplevel(level, axis=1)
    return table.texts


def _styled(table: Table, show: Callable[[Any], str], bold: str) -> Styler:
    """Return the texts made safe for a format, with a style for bold ones."""
    texts = _flat(table)
    styles = texts.copy()
    for place, head in enumerate(table.heads):
        styles.isetitem(place, [bold if (row, head) in table.bold else "" for row in texts.index])
    styler = texts.style.format(show).format_index(show, axis=0).format_index(show, axis=1)
    return styler.apply(lambda _: styles, axis=None)


def _printed(table: Table, text: str) -> str:
    """Name datasets as papers do: `CIFAR-10 (5,000)` for `cifar10[5000]`."""
    for column in sorted(table.study.columns, key=len, reverse=True):
        name = re.sub(r"\[(.*)\]", lambda found: f" ({re.sub(r'[0-9]{4,}', _thousands, found[1])})", column)
        for beginning, printed in PRINTED.items():
            name = re.sub(rf"^{beginning}(?![a-z-])", printed, name)
        text = text.replace(column, name)
    return text


def _thousands(found: re.Match[str]) -> str:
    return f"{int(found[0]):,}"


FORMATS: dict[str, tuple[str, Callable[[Table, bool], str]]] = {
    "latex": ("tex", to_latex),
    "markdown": ("md", to_markdown),
    "csv": ("csv", to_csv),
    "html": ("html", to_html),
}
"""By name: the file's ending, and what writes it."""


def template(name: str, folder: Path = TEMPLATES, **values: Any) -> str:
    """Fill in a template of a folder, or of this package; what it prints is made harmless in HTML, or in text."""
    return _environment(name.split(".")[-2], folder).get_template(name).render(**values)


@cache
def _environment(kind: str, folder: Path) -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    shown = one_line if kind == "html" else printable
    environment = Environment(
        loader=FileSystemLoader([folder, TEMPLATES]),
        trim_blocks=True,
        keep_trailing_newline=True,
        undefined=StrictUndefined,
        autoescape=kind == "html",
        finalize=lambda value: shown(value) if type(value) is str else value,
        **(BRACKETS if kind == "html" else {}),
    )
    environment.filters |= {"latex": escape_latex, "signed": signed, "count": count}
    environment.filters |= {"interval": interval_text, "p": p_equals}
    return environment
