"""A table on a terminal: one line per row, split by columns into panels that fit."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from vitinit.analysis.tables.render import Column, columns, side_by_side
from vitinit.analysis.tables.shared import PLAIN, Table, TableLayout
from vitinit.analysis.text import one_line

if TYPE_CHECKING:
    from rich.text import Text

LEAST_LABEL = 14
"""A row's label is broken at a third of the width, and not before."""
LEAST_HEAD = 16
"""A column's label is broken at the width of its numbers, and not before."""
GAP = 3
"""Spaces in front of a column's numbers."""


def to_terminal(table: Table, width: int, look: TableLayout = PLAIN) -> list[Text]:
    """The lines of a table, none wider than `width` letters (of which 60 are enough for most tables)."""
    labels = {row: one_line(row) for row in table.rows}
    room = max(LEAST_LABEL, width // 3)
    wrapped = {row: _wrap(label, room) for row, label in labels.items()}
    beside = max(_width(line) for lines in wrapped.values() for line in lines)
    lines: list[Text] = []
    for panel in side_by_side(columns(table, look), width - beside, _width, GAP, LEAST_HEAD):
        lines += [*_panel(panel, wrapped, beside), _text("")]
    return lines[:-1]


def _panel(panel: list[Column], wrapped: dict[str, list[str]], beside: int) -> list[Text]:
    wide = [round(column.width(_width, GAP, LEAST_HEAD)) for column in panel]
    heads = [_wrap(one_line(column.label), width) for column, width in zip(panel, wide, strict=True)]
    deep = max(map(len, heads))
    lines = [_text(" " * beside) for _ in range(deep + 1)]
    for number, line in enumerate(lines[:-1]):
        for head, width in zip(heads, wide, strict=True):
            line.append(" " * GAP + _right(([""] * (deep - len(head)) + head)[number], width))
    rows = {row: _text(label[0] + " " * (beside - _width(label[0]))) for row, label in wrapped.items()}
    for column, width in zip(panel, wide, strict=True):
        spare = width - round(column.width(_width, GAP))
        for part in column.parts:
            across = max(map(_width, [part.head, *part.texts.values()]))
            lines[-1].append(" " * (GAP + spare) + _right(part.head, across))
            for row, line in rows.items():
                text = part.texts[row]
                line.append(" " * (GAP + spare + across - _width(text)))
                line.append(text, "bold" if row in part.bold else "")
            spare = 0
    lines = [line for line in lines if line.plain.strip()]
    for line in (*lines, *rows.values()):
        line.rstrip()
    lines.append(_text("-" * max(_width(line.plain) for line in (*lines, *rows.values()))))
    for row, line in rows.items():
        lines += [line, *(_text(more) for more in wrapped[row][1:])]
    return lines


def _right(text: str, width: int) -> str:
    return " " * (width - _width(text)) + text


def _width(text: str) -> int:
    """On a terminal, where letters of some scripts are two places wide."""
    from rich.cells import cell_len

    return cell_len(text)


def _wrap(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width if _width(text) == len(text) else max(1, width // 2)) or [""]


def _text(text: str) -> Text:
    from rich.text import Text

    return Text(text, no_wrap=True)
