"""Printing on a terminal: the one place that makes text from records and grids harmless, and that knows the width."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Sequence
from functools import cache
from itertools import zip_longest
from typing import Any

from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleDimensions
from rich.text import Text

from vitinit.initializers.errors import printable

NEVER_FOLDED = 100_000
"""Columns where there is no terminal: a pipe or a file has no width, and lines and paths in it stay whole."""
LEAST = 8
"""Columns that a folded text keeps, however narrow the terminal is."""
GAP = "  "


class Terminal(Console):
    """Console to which every string is foreign: one line of printable text without markup.

    That holds for cells and titles of tables, too. A style is an argument, or a part of `styled`.
    """

    def __init__(self, width: int | None = None) -> None:
        super().__init__(highlight=False, emoji=False, markup=False, width=width)

    @property  # type: ignore[misc]
    def size(self) -> ConsoleDimensions:
        """Return what it has now: a terminal may be resized, and the output turned to a file."""
        told = self._width or (sys.stdout and sys.stdout.isatty())
        return super().size if told else ConsoleDimensions(NEVER_FOLDED, 25)

    def render_str(self, text: str, **options: Any) -> Text:
        """Return the text as rich prints it, made harmless."""
        return super().render_str(printable(text), **{**options, "markup": False})

    @property
    def room(self) -> int | None:
        """Width that lines are folded to, on a terminal or where COLUMNS is set; None where nothing is folded."""
        return self.width if self.width < NEVER_FOLDED else None

    def styled(self, *parts: str | tuple[str, str]) -> None:
        """Print one line of texts, each with a style or without."""
        pairs = ((part, "") if isinstance(part, str) else part for part in parts)
        self.print(Text.assemble(*((printable(text), style) for text, style in pairs)), soft_wrap=not self.room)


def duration(seconds: float) -> str:
    """Return a time in the two units that matter."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"


def aligned(rows: Sequence[Sequence[str]], right: Sequence[int] = (), room: int | None = None) -> list[str]:
    """Lay out a table as plain text, an entry a row; rich takes some milliseconds a row, which is long for thousands.

    Args:
        rows: Cells of the heading, then of each row.
        right: Columns that are set flush right.
        room: Width to which the widest columns are folded between words; None: nothing is folded.
    """
    cells = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(cell_len, column)) for column in zip(*cells, strict=True)]
    while room and sum(widths) + len(GAP) * (len(widths) - 1) > room and max(widths) > LEAST:
        widths[widths.index(max(widths))] -= 1

    @cache
    def folded(text: str, width: int) -> list[str]:
        if cell_len(text) <= width:
            return [text]
        return textwrap.wrap(text, width if cell_len(text) == len(text) else max(1, width // 2)) or [""]

    def place(text: str, at: int) -> str:
        return " " * (widths[at] - cell_len(text)) + text if at in right else set_cell_size(text, widths[at])

    def joined(row: Sequence[str]) -> str:
        lines = zip_longest(*map(folded, row, widths), fillvalue="")
        return "\n".join(GAP.join(map(place, line, range(len(widths)))).rstrip() for line in lines)

    return list(map(joined, cells))
