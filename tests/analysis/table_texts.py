"""The texts of a table with its gains, to two digits: what tests compare with numbers of their own."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from vitinit.analysis.tables.printing.terminal import to_terminal
from vitinit.analysis.tables.render import columns
from vitinit.analysis.tables.shared import PLAIN, Table, TableLayout
from vitinit.benchmark.terminal import Terminal


class Entry(NamedTuple):
    """One cell: mean ± spread, then gain and p where there are any; the published numbers beside it."""

    ours: list[str]
    paper: list[str]
    bold: bool


def entry(table: Table, row: str, column: str = "cifar10") -> Entry:
    """Of a column that has a number."""
    (found,) = [each for each in columns(replace(table, digits=2), TableLayout(gain=True)) if each.label == column]
    first, *more = found.parts
    texts = [(part.head.startswith("paper"), part.texts[row]) for part in more if part.texts[row]]
    paper, others = ([text for theirs, text in texts if theirs == which] for which in (True, False))
    return Entry([first.texts[row], *others], paper, row in first.bold)


def stands_beside_a_published_table(table: Table) -> bool:
    """Some column has a number of a paper."""
    return any(part.head.startswith("paper") for column in columns(table) for part in column.parts)


def lines_of(table: Table, width: int, look: TableLayout = PLAIN) -> list[str]:
    """Its lines on a terminal of so many columns."""
    terminal = Terminal()
    terminal.width = width
    with terminal.capture() as captured:
        for panel in to_terminal(table, width, look):
            terminal.print(panel)
    return [line.rstrip() for line in captured.get().splitlines()]
