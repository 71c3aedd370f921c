"""The texts of a table with its gains, to two digits: what tests compare with numbers of their own."""

from __future__ import annotations

from dataclasses import dataclass

from analysis.tables import render
from analysis.tables.shared import Look, Table


@dataclass
class Entry:
    """One cell."""

    ours: list[str]
    """Mean ± spread, then gain and p where there are any."""
    paper: list[str]
    bold: bool


@dataclass
class Column:
    """One column."""

    label: str
    published: bool
    entries: dict[str, Entry]


def columns(table: Table) -> list[Column]:
    """All columns that have a number."""
    return [_column(column, table.rows) for column in render.columns(table, Look(gain=True, digits=2))]


def _column(column: render.Column, rows: list[str]) -> Column:
    first, *more = column.parts
    papers = [part for part in more if part.head.startswith("paper")]
    others = [part for part in more if part not in papers]
    entries = {}
    for row in rows:
        ours = [first.texts[row], *(part.texts[row] for part in others if part.texts[row])]
        paper = [part.texts[row] for part in papers if part.texts[row]]
        entries[row] = Entry(ours, paper, row in first.bold)
    return Column(column.label, bool(papers), entries)
