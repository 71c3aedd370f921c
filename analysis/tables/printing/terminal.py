"""Tables on a terminal: one line per row, split by columns into panels that fit."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from vitinit.analysis.tables.render import columns, side_by_side
from vitinit.analysis.tables.shared import PLAIN, Table, TableLayout
from vitinit.initializers.errors import printable

if TYPE_CHECKING:
    from rich.table import Table as RichTable

LEAST_LABEL = 14
"""Least width of row labels before they wrap; they may take a third of the terminal."""
LEAST_HEAD = 16
"""Least width of column labels before they wrap; they may be as wide as their numbers."""
GAP = 3
"""Spaces in front of a column's numbers."""


def to_terminal(table: Table, width: int, look: TableLayout = PLAIN) -> list[RichTable]:
    """Return the panels of a table, each at most `width` characters wide (60 are enough for most tables)."""
    from rich import box
    from rich.cells import cell_len
    from rich.table import Table as RichTable
    from rich.text import Text

    room = max(LEAST_LABEL, width // 3)
    beside = min(room, max(map(cell_len, table.rows)))
    panels = []
    for block in side_by_side(columns(table, look), width - beside, cell_len, GAP, LEAST_HEAD):
        panel = RichTable(box=box.SIMPLE_HEAD, padding=(0, 0, 0, GAP), show_edge=False, pad_edge=False)
        panel.add_column("", max_width=beside, overflow="fold")
        heads: list[list[str]] = []
        widths: list[int] = []
        for column in block:
            across = round(column.width(cell_len, GAP, LEAST_HEAD))
            label = textwrap.wrap(printable(column.label), across if column.label.isascii() else across // 2)
            for number, part in enumerate(column.parts):
                heads.append([*(label if number == 0 else ()), *([part.head] if part.head else [])])
                widths.append(across if len(column.parts) == 1 else cell_len(part.head))
        deep = max(map(len, heads))
        for head, width_of in zip(heads, widths, strict=True):
            lines = [""] * (deep - len(head)) + head
            panel.add_column(Text("\n".join(lines)), justify="right", no_wrap=True, min_width=width_of)
        for row in table.rows:
            parts = [part for column in block for part in column.parts]
            texts = (Text(printable(part.texts[row]), "bold" if row in part.bold else "") for part in parts)
            panel.add_row(row, *texts)
        panels.append(panel)
    return panels
