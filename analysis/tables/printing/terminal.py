"""A table on a terminal: one line per row, split by columns into panels that fit, the study's setting once above."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING

from analysis.tables.render import DAGGER, better_text, interval_text, p_shown
from analysis.tables.shared import Cell, Table, usual_seeds
from analysis.text import one_line, signed

if TYPE_CHECKING:
    from rich.text import Text

LEAST_LABEL = 14
"""A row's label is broken at a third of the width, and not before."""
LEAST_HEAD = 16
"""A column's label is broken at the width of its numbers, and not before."""
NOTHING = "–"
"""In place of our number."""
GAP = 2
"""Spaces between numbers; one more between columns."""


@dataclass(frozen=True)
class Part:
    """Numbers of one kind under a column's label."""

    head: str
    texts: dict[str, str]
    """By row label."""
    bold: frozenset[str] = frozenset()
    """Row labels."""

    @property
    def width(self) -> int:
        """Places on the terminal."""
        return max(map(_width, [self.head, *self.texts.values()]))


@dataclass(frozen=True)
class Block:
    """A column with its parts beside one another."""

    label: str
    parts: tuple[Part, ...]

    @property
    def numbers(self) -> int:
        """Places that the parts take."""
        return sum(part.width for part in self.parts) + GAP * (len(self.parts) - 1)

    @property
    def width(self) -> int:
        """Places on the terminal."""
        return max(self.numbers, min(_width(self.label), LEAST_HEAD))


def to_terminal(table: Table, width: int) -> list[Text]:
    """The lines of a table, none wider than `width` letters (of which 60 are enough for most tables).

    A column without any number is left out: what is printed beside the table says why it has none.
    """
    labels = {row: one_line(row) for row in table.rows}
    room = max(LEAST_LABEL, width // 3)
    wrapped = {row: _wrap(label, room) for row, label in labels.items()}
    beside = max(_width(line) for lines in wrapped.values() for line in lines)
    panels: list[list[Block]] = []
    left = -1
    for block in _blocks(table, width - beside - GAP - 1):
        left -= block.width + GAP + 1
        if left < 0:
            panels.append([])
            left = width - beside - block.width - GAP - 1
        panels[-1].append(block)
    lines: list[Text] = []
    for panel in panels:
        lines += [*_panel(panel, wrapped, beside), _text("")]
    return lines[:-1]


def _blocks(table: Table, room: int) -> list[Block]:
    """The columns; one too wide for the terminal is several of the same label."""
    usual = usual_seeds(table)
    compared = any(cell.against for cell in table.cells.values())
    blocks = []
    for column in table.columns:
        cells = {row: table.cells[row, column] for row in table.rows}
        parts = _parts(cells, usual, table.study.metrics.get(column, table.study.measured) if compared else "")
        if any(text not in ("", NOTHING) for part in parts for text in part.texts.values()):
            blocks.append(Block(one_line(column), tuple(parts)))
    if table.across:
        blocks.append(Block(f"{len(table.together)} columns together", tuple(_across(table))))
    result = []
    for block in blocks:
        if block.width > room:
            result += [Block(block.label, (part,)) for part in block.parts]
        else:
            result.append(block)
    return result


def _parts(cells: dict[str, Cell], usual: int | None, measured: str) -> list[Part]:
    paper = {row: f"{cell.published.value:.2f}" if cell.published else "" for row, cell in cells.items()}
    theirs = {
        row: "" if cell.published_difference is None else signed(cell.published_difference)
        for row, cell in cells.items()
    }
    published = any(paper.values()) or any(theirs.values())
    bold = frozenset(row for row, cell in cells.items() if cell.best)
    ours = {row: _mean(cell, usual) for row, cell in cells.items()}
    parts = [Part("ours" if published else measured, ours, bold)]
    if any(paper.values()):
        parts.append(Part("paper", paper))
    differences = {row: _difference(cell) for row, cell in cells.items()}
    if any(differences.values()):
        parts.append(Part("difference [95 %]", differences))
    if any(theirs.values()):
        parts.append(Part("paper's" if any(paper.values()) else "paper", theirs))
    tests = {row: p_shown(cell) or "" for row, cell in cells.items()}
    if any(tests.values()):
        parts.append(Part("p (Holm)", tests))
    return parts


def _mean(cell: Cell, usual: int | None) -> str:
    if cell.switch is not None:
        return "✓" if cell.switch else "✗"
    if cell.ours is None:
        return NOTHING
    mean = signed(cell.ours.mean) if cell.signed else f"{cell.ours.mean:.2f}"
    spread = "" if cell.ours.std is None else f"±{cell.ours.std:.2f}"
    other = "" if cell.ours.n == usual else f" n={cell.ours.n}"
    return f"{mean}{spread}{DAGGER if cell.excludes_published else ''}{other}"


def _difference(cell: Cell) -> str:
    if cell.against is None:
        return ""
    between = f" {interval_text(cell.against.interval)}" if cell.against.interval else ""
    fewer = f" n={cell.against.n}" if cell.ours and cell.against.n != cell.ours.n else ""
    return f"{signed(cell.against.mean)}{between}{fewer}"


def _across(table: Table) -> list[Part]:
    """The row over all columns, each number named."""
    means, middles, better = {}, {}, {}
    for row in table.rows:
        found = table.across.get(row)
        means[row] = f"{found.mean:.2f}" if found else NOTHING
        middles[row] = f"{found.iqm.value:.2f} {interval_text(found.iqm.interval)}" if found else ""
        chance = found.better if found else None
        better[row] = better_text(chance) if chance else ""
    parts = [Part("mean", means), Part("middle half's mean", middles)]
    return parts + ([Part(f"P(a run beats {table.baseline or 'its base'}'s)", better)] if any(better.values()) else [])


def _panel(blocks: list[Block], wrapped: dict[str, list[str]], beside: int) -> list[Text]:
    heads = [_wrap(block.label, block.width) for block in blocks]
    deep = max(map(len, heads))
    gap = " " * (GAP + 1)
    lines = []
    for number in range(deep):
        texts = [
            _right(([""] * (deep - len(head)) + head)[number], block.width)
            for head, block in zip(heads, blocks, strict=True)
        ]
        lines.append(_text((" " * beside + gap + gap.join(texts)).rstrip()))
    under = _text(" " * beside)
    for block in blocks:
        under.append(
            gap + " " * (block.width - block.numbers) + (" " * GAP).join(_right(p.head, p.width) for p in block.parts)
        )
    if under.plain.strip():
        lines.append(under)
    lines.append(_text("-" * max(_width(line.plain) for line in lines)))
    for row, label in wrapped.items():
        line = _text(label[0] + " " * (beside - _width(label[0])))
        for block in blocks:
            line.append(gap + " " * (block.width - block.numbers))
            for place, part in enumerate(block.parts):
                line.append(" " * GAP * bool(place))
                text = part.texts[row]
                line.append(" " * (part.width - _width(text)))
                line.append(text, "bold" if row in part.bold else "")
        line.rstrip()
        lines += [line, *(_text(more) for more in label[1:])]
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
