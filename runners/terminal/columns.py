"""Lines of a long list in columns, without rich's tables, which take seconds for thousands of lines."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from vitinit.initializers.errors import plain

GAP = "  "
"""Between columns."""
LEAST = 8
"""Columns of a terminal that a text keeps, however narrow it is."""


def aligned(column: Sequence[str], right: bool = False) -> list[str]:
    """The texts of a column, safe to print and all of one width."""
    shown = {text: plain(text) for text in set(column)}
    width = max(map(cell_len, shown.values()))
    for text, printed in shown.items():
        gap = " " * (width - cell_len(printed))
        shown[text] = gap + printed if right else printed + gap
    return [shown[text] for text in column]


def width(columns: Sequence[Sequence[str]]) -> int:
    """Of a line."""
    return sum(cell_len(column[0]) + len(GAP) for column in columns) - len(GAP)


def folded(console: Console, columns: list[list[str]], pair: int, room: int) -> list[list[str]]:
    """The columns, the one at `pair` and the next broken between words so that lines fit into so much room."""
    both = columns[pair : pair + 2]
    first, second = (cell_len(column[0]) for column in both)
    left = room - width(columns) + first + second
    if first + second <= left or left < 2 * LEAST:
        return columns
    first = first if first <= left // 2 else max(left - second, left // 2)
    return [
        *columns[:pair],
        _broken(console, both[0], first),
        _broken(console, both[1], left - first),
        *columns[pair + 2 :],
    ]


def _broken(console: Console, column: list[str], room: int) -> list[str]:
    shown = {text: "\n".join(line.plain for line in Text(text.rstrip()).wrap(console, room)) for text in set(column)}
    return [shown[text] for text in column]


def lines(columns: list[list[str]]) -> list[str]:
    """A text for each entry; it has several lines where one of its cells has."""
    widths = [max(cell_len(line) for text in set(column) for line in text.split("\n")) for column in columns]
    return [_joined(cells, widths) for cells in zip(*columns, strict=True)]


def _joined(cells: tuple[str, ...], widths: list[int]) -> str:
    parts = zip_longest(*(cell.split("\n") for cell in cells), fillvalue="")
    return "\n".join(
        GAP.join(text + " " * (wide - cell_len(text)) for text, wide in zip(line, widths, strict=True)).rstrip()
        for line in parts
    )
