"""A table as text: LaTeX, Markdown, HTML and CSV. The same records give the same bytes."""

from __future__ import annotations

import csv
import io
import re
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitinit.analysis.tables.notes import caption, gains
from vitinit.analysis.tables.shared import PLAIN, Table, TableCell, TableLayout, usual_seeds
from vitinit.analysis.text import count, escape_latex, escape_markdown, number, one_line, signed
from vitinit.initializers.errors import printable

if TYPE_CHECKING:
    from jinja2 import Environment

    from vitinit.analysis.stats import Interval

DAGGER = "†"
NOTHING = "–"
"""In place of our number."""
TEMPLATES = Path(__file__).parent / "templates"
PRINTED = {"cifar": "CIFAR-", "svhn": "SVHN", "imagenet": "ImageNet"}
"""Beginnings of datasets' names in LaTeX."""


BRACKETS = {
    "block_start_string": "((*",
    "block_end_string": "*))",
    "variable_start_string": "(((",
    "variable_end_string": ")))",
    "comment_start_string": "((=",
    "comment_end_string": "=))",
}
"""Delimiters of templates for LaTeX and HTML."""


@dataclass(frozen=True)
class SubColumn:
    """Numbers of one kind below a column's label."""

    head: str
    texts: dict[str, str]
    """By row label."""
    bold: frozenset[str] = frozenset()
    """Row labels."""


@dataclass(frozen=True)
class Column:
    """A column of the table with its parts side by side: our numbers first."""

    label: str
    parts: tuple[SubColumn, ...]
    switch: bool = False
    """On or off in each row, in place of numbers."""

    def width(self, of: Callable[[str], float], gap: float, least: float = 0.0) -> float:
        """Width of the column: of its parts side by side, or of its label, which breaks at spaces behind `least`."""
        widths = [max(map(of, [part.head, *part.texts.values()])) for part in self.parts]
        label = min(of(self.label), max(least, *map(of, self.label.split()))) if least else 0.0
        return max(sum(widths) + gap * (len(widths) - 1), label)


def columns(table: Table, look: TableLayout = PLAIN) -> list[Column]:
    """Return the columns that every format shows, in order, without those that hold no number."""
    found = []
    for label in table.columns:
        cells = {row: table.cells[row, label] for row in table.rows}
        measured = table.study.metrics.get(label, table.study.measured)
        switch = any(cell.switch is not None for cell in cells.values())
        found.append(Column(label, tuple(_parts(table, look, cells, measured)), switch))
    return [
        column for column in found if any(text.strip(NOTHING) for part in column.parts for text in part.texts.values())
    ]


def _parts(table: Table, look: TableLayout, cells: dict[str, TableCell], measured: str) -> list[SubColumn]:
    digits = table.digits
    usual = usual_seeds(table)

    def part(head: str, text: Callable[[TableCell], str]) -> list[SubColumn]:
        texts = {row: text(cell) for row, cell in cells.items()}
        return [SubColumn(head, texts)] if any(texts.values()) else []

    def published(cell: TableCell) -> str:
        if cell.signed and cell.published_difference is not None:
            return signed(cell.published_difference, digits)
        return f"{cell.published.value:.{digits}f}" if cell.published else ""

    def published_gain(cell: TableCell) -> str:
        return "" if cell.signed or cell.published_difference is None else signed(cell.published_difference, digits)

    more = part("paper", published)
    head = "ours" if more else ""
    if gains(table, look):
        more += part("gain [95 %]", lambda cell: _gain(cell, digits))
        more += part("paper's gain", published_gain)
        more += part("p", lambda cell: p_shown(cell) or "")
        more += part("pooled [95 %]", lambda cell: interval_text(cell.pooled, digits) if cell.pooled else "")
        more += part("pooled p", lambda cell: "" if cell.pooled_p is None else p_written(cell.pooled_p))
    ours = {row: _mean(cell, usual, digits) for row, cell in cells.items()}
    bold = frozenset(row for row, cell in cells.items() if cell.best)
    return [SubColumn(head or (measured if more else ""), ours, bold), *more]


def _mean(cell: TableCell, usual: int | None, digits: int) -> str:
    if cell.switch is not None:
        return "✓" if cell.switch else "✗"
    if cell.ours is None:
        return NOTHING
    mean = (signed if cell.signed else number)(cell.ours.mean, digits)
    spread = "" if cell.ours.std is None else f" ± {cell.ours.std:.{digits}f}"
    other = "" if cell.ours.n == usual else f" (n={cell.ours.n})"
    return f"{mean}{spread}{DAGGER if cell.excludes_published else ''}{other}"


def _gain(cell: TableCell, digits: int) -> str:
    if cell.against is None:
        return ""
    between = f" {interval_text(cell.against.interval, digits)}" if cell.against.interval else ""
    fewer = f" (n={cell.against.n})" if cell.ours and cell.against.n != cell.ours.n else ""
    return f"{signed(cell.against.mean, digits)}{between}{fewer}"


def side_by_side(
    shown: list[Column], room: float, of: Callable[[str], float], gap: float, least: float
) -> list[list[Column]]:
    """Panels of columns that fit into the room behind the row labels.

    Args:
        shown: The columns; one too wide is several of the same label.
        room: For the columns of a panel.
        of: Width of a text.
        gap: Between parts, and in front of each column.
        least: The width at which a column's label is broken, and not before.
    """
    panels: list[list[Column]] = []
    left = -1.0
    for column in shown:
        apart = column.width(of, gap) + gap > room
        for block in [Column(column.label, (part,)) for part in column.parts] if apart else [column]:
            needs = gap + block.width(of, gap, least)
            if needs > left:
                panels.append([])
                left = room
            panels[-1].append(block)
            left -= needs
    return panels


def interval_text(interval: Interval, digits: int = 2) -> str:
    """Both ends."""
    return f"[{number(interval.low, digits)}, {number(interval.high, digits)}]"


def p_shown(cell: TableCell) -> str | None:
    """The corrected p where it could be under 0.05 at all."""
    return None if cell.telling_p is None else p_written(cell.telling_p)


def p_written(p: float) -> str:
    """Three digits: `0.016`, or that it is less."""
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def p_equals(p: float) -> str:
    """`= 0.016`, or that it is less."""
    written = p_written(p)
    return written if written[0] == "<" else f"= {written}"


@dataclass(frozen=True)
class Tabular:
    """A LaTeX tabular: some columns, and some rows with their labels broken into lines."""

    columns: list[Column]
    rows: dict[str, list[str]]

    @property
    def heads(self) -> bool:
        """True where a line below the labels of the columns names their parts."""
        return any(part.head for column in self.columns for part in column.parts)


def to_latex(table: Table, look: TableLayout = PLAIN) -> str:
    """Complete `table` environments for an article, or a column of one in two columns; notes are comments."""
    # Points of the standard classes, whose fonts are wider than others': \small at 345 pt, or \footnotesize at 229 pt.
    size, room, gap, most = 9.0, 343.0, 8.0, 46
    most -= int(5 * len(caption(table, look)) / room) + 1

    def of(text: str) -> float:
        return size * _ems(text)

    shown = [replace(column, label=_printed(column.label)) for column in columns(table, look)]
    names = {row: _printed(row) if table.transposed else row for row in table.rows}
    widest = max(map(of, names.values()))
    narrow = min(widest, 0.4 * room)
    floats: list[list[Tabular]] = []
    left = 0
    # What is broken where not all columns fit side by side: heads, then rows, then heads at any space.
    for least, beside in ((room, widest), (6 * size, widest), (6 * size, narrow), (3 * size, narrow)):
        blocks = side_by_side(shown, room - beside, of, gap, least)
        if sum(gap + column.width(of, gap, least) for column in shown) <= room - beside:
            break
    for block in blocks:
        used = sum(gap + column.width(of, gap, least) for column in block)
        labels = {row: _wrap(name, max(beside, room - used), of) for row, name in names.items()}
        head = 3 + max(len(_wrap(column.label, column.width(of, gap, least), of)) for column in block)
        if head + sum(map(len, labels.values())) > left:
            left = 0
        for row, lines in labels.items():
            if len(lines) > left:
                floats.append([])
                left = most
            if not floats[-1] or floats[-1][-1].columns is not block:
                floats[-1].append(Tabular(block, {}))
                left -= head
            floats[-1][-1].rows[row] = lines
            left -= len(lines)
    return template(
        "table.tex.j2",
        table=table,
        floats=floats,
        look=look,
        size=r"\small",
        gap=gap,
        of=of,
        room=lambda column: column.width(of, gap, least),
    )


def _printed(label: str) -> str:
    """A column's label as papers write it: `CIFAR-10 (5,000)` for `cifar10[5000]`."""
    label = re.sub(r"\[([^\]]*)\]", r" (\1)", label)
    label = re.sub(r"(?<![\d.])\d{4,}", lambda found: f"{int(found[0]):,}", label)
    return re.sub(r"^(cifar(?=1)|svhn|imagenet)", lambda found: PRINTED[found[0]], label)


def _ems(text: str) -> float:
    """An estimate of a text's width in Computer Modern, in its own size."""
    widths = {"m": 0.86, "w": 0.74, "–": 0.53, **dict.fromkeys("ijl .,:;'()[]|", 0.31), **dict.fromkeys("±−✓✗†", 0.85)}
    other = {char: 0.54 if char.islower() or char.isdigit() else 0.85 if ord(char) < 0x250 else 5.3 for char in text}
    return sum((other | widths)[char] for char in text)


def to_html(table: Table, look: TableLayout = PLAIN) -> str:
    """A page of its own."""
    return template("table.html.j2", table=table, columns=columns(table, look), look=look)


def template(name: str, folder: Path = TEMPLATES, **values: Any) -> str:
    """Fill in a template of a folder, or of this package; what it prints is made harmless in HTML, LaTeX or text."""
    return _environment(name.split(".")[-2], folder).get_template(name).render(**values)


@cache
def _environment(kind: str, folder: Path) -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    escape = {"html": one_line, "tex": escape_latex, "txt": printable}[kind]
    # Jinja's own braces mean something else in LaTeX, and our HTML has the same.
    brackets: dict[str, Any] = {} if kind == "txt" else BRACKETS
    environment = Environment(
        loader=FileSystemLoader([folder, TEMPLATES]),
        trim_blocks=True,
        keep_trailing_newline=True,
        undefined=StrictUndefined,
        autoescape=kind == "html",
        finalize=lambda value: escape(value) if type(value) is str else value,
        **brackets,
    )
    environment.filters |= {"stack": lambda *given: Markup(_stack(*given)), "wrap": _wrap, "one_line": one_line}
    environment.filters |= {"caption": caption, "latex": escape_latex, "signed": signed, "count": count}
    environment.filters |= {"interval": interval_text, "p": p_equals}
    environment.globals |= {"look": PLAIN, "sorts": False}
    return environment


def _stack(lines: list[str], align: str) -> str:
    """Lines above one another in one cell of a LaTeX table."""
    texts = [escape_latex(line) for line in lines]
    if len(texts) < 2:
        return "".join(texts)
    return (
        rf"\begin{{tabular}}[{'t' if align == 'l' else 'b'}]{{@{{}}{align}@{{}}}}"
        + r" \\ ".join(texts)
        + r"\end{tabular}"
    )


def _wrap(label: str, width: float, of: Callable[[str], float]) -> list[str]:
    """Lines that are no wider, broken at spaces; within a word only where it is wider."""
    lines = [""]
    for word in one_line(label).split():
        part = len(word) if of(word) <= width else max(1, int(0.9 * width / of(word) * len(word)))
        for piece in textwrap.wrap(word, part):
            joined = f"{lines[-1]} {piece}".strip()
            lines = [*lines[:-1], joined] if of(joined) <= width or not lines[-1] else [*lines, piece]
    return lines


def to_markdown(table: Table, look: TableLayout = PLAIN) -> str:
    """A pipe table."""
    shown = columns(table, look)
    heads = [""]
    for column in shown:
        heads += [column.label, *(part.head for part in column.parts[1:])]
    lines = [[escape_markdown(head) for head in heads], ["---"] + ["--:"] * (len(heads) - 1)]
    for row in table.rows:
        parts = [part for column in shown for part in column.parts]
        texts = [(escape_markdown(part.texts[row]), row in part.bold) for part in parts]
        lines.append([escape_markdown(row), *(f"**{text}**" if bold else text for text, bold in texts)])
    text = [f"{escape_markdown(caption(table, look))}\n", *(f"| {' | '.join(line)} |" for line in lines)]
    notes = [f"- {escape_markdown(note)}" for note in table.notes] if look.whole else []
    return "\n".join([*text, *([""] if notes else []), *notes]) + "\n"


def to_csv(table: Table, look: TableLayout = PLAIN) -> str:
    """One line per cell, every number of it; empty where there is none. What is over several columns is not in it."""
    buffer = io.StringIO()
    names = "row column n mean std low high best baseline pairs difference difference_low difference_high "
    names += "p p_holm published published_spread published_n published_paper "
    names += "published_table published_provenance published_difference switch "
    names += "pooled_low pooled_high pooled_p_holm detectable"
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(names.split())
    for (row, column), cell in table.cells.items():
        ours, pair, paper = cell.ours, cell.against, cell.published and cell.published.cell
        line: list[Any] = [row, column]
        line += [ours.n, ours.mean, ours.std, *_ends(ours.interval), int(cell.best)] if ours else [None] * 6
        line.append(table.baselines[row] if pair else None)
        line += [pair.n, pair.mean, *_ends(pair.interval)] if pair else [None] * 4
        line += [pair.p if pair and cell.p is not None else None, cell.p]
        line += [paper.value, paper.spread, paper.n] if paper else [None] * 3
        where = cell.published
        line += [where.publication.paper, where.table, where.cell.provenance] if where else [None] * 3
        line += [cell.published_difference, None if cell.switch is None else int(cell.switch)]
        line += [*_ends(cell.pooled), cell.pooled_p, cell.detectable]
        # Ten digits: the last ones of a mean depend on the processor's order of summation.
        writer.writerow(
            [f"{x:.10g}" if isinstance(x, float) else one_line(x) if isinstance(x, str) else x for x in line]
        )
    return buffer.getvalue()


def _ends(interval: Interval | None) -> list[float | None]:
    return [interval.low, interval.high] if interval else [None, None]


FORMATS: dict[str, tuple[str, Callable[[Table, TableLayout], str]]] = {
    "latex": ("tex", to_latex),
    "markdown": ("md", to_markdown),
    "csv": ("csv", to_csv),
    "html": ("html", to_html),
}
"""By name: the file's ending, and what writes it."""
