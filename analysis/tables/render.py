"""A table as text: LaTeX, Markdown, HTML and CSV. The same records give the same bytes."""

from __future__ import annotations

import csv
import io
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.tables.shared import LEVEL, Across, Cell, Table
from analysis.text import count, escape_latex, escape_markdown, one_line, signed

if TYPE_CHECKING:
    from analysis.stats import Estimate, Interval

DAGGER = "†"
TEMPLATES = Path(__file__).parent / "templates"


@dataclass(frozen=True)
class Entry:
    """The lines of one cell."""

    ours: list[str]
    paper: list[str]
    bold: bool = False
    """The first line of ours."""


@dataclass(frozen=True)
class Column:
    """A column of the table: one of ours, a second one where the paper has numbers."""

    label: str
    published: bool
    entries: dict[str, Entry]
    """By row label."""
    switch: bool = False
    """On or off in each row: no numbers, of ours or the paper's."""


def columns(table: Table) -> list[Column]:
    """What every format shows, in order; the last may be that over several columns."""
    result = []
    for label in table.columns:
        cells = {row: table.cells[row, label] for row in table.rows}
        published = any(cell.published or cell.published_difference is not None for cell in cells.values())
        switch = any(cell.switch is not None for cell in cells.values())
        result.append(Column(label, published, {row: _entry(cell) for row, cell in cells.items()}, switch))
    if table.across:
        entries = {row: _across(table.across.get(row)) for row in table.rows}
        result.append(Column(f"{count(len(table.together), 'column')} together", False, entries))
    return result


def _entry(cell: Cell) -> Entry:
    if cell.switch is not None:
        return Entry(["✓" if cell.switch else "✗"], [])
    paper = [f"{cell.published.value:.2f}"] if cell.published else []
    if cell.published_difference is not None:
        paper.append(signed(cell.published_difference))
    if cell.ours is None:
        return Entry(["–"], paper)
    spread = "" if cell.ours.std is None else f"±{cell.ours.std:.2f}"
    mean = signed(cell.ours.mean) if cell.signed else f"{cell.ours.mean:.2f}"
    lines = [f"{mean}{spread}{DAGGER if cell.excludes_published else ''}"]
    if cell.against is None:
        lines.append(f"n={cell.ours.n}")
    else:
        lines[0] += "" if cell.ours.n == cell.against.n else f" n={cell.ours.n}"
        between = f" {interval_text(cell.against.interval)}" if cell.against.interval else ""
        lines += [f"{signed(cell.against.mean)}{between}", p_text(cell)]
    return Entry(lines, paper, cell.best)


def _across(across: Across | None) -> Entry:
    if across is None:
        return Entry(["–"], [])
    lines = [f"{across.mean:.2f}", f"IQM {across.iqm.value:.2f} {interval_text(across.iqm.interval)}"]
    if across.better:
        lines.append(f"P {better_text(across.better)}")
    return Entry(lines, [])


def better_text(better: Estimate) -> str:
    """A probability and its interval; none where every run is better, or none is: resamples say nothing else."""
    between = "" if better.value in (0, 1) else f" {interval_text(better.interval)}"
    return f"{better.value:.2f}{between}"


def interval_text(interval: Interval) -> str:
    """Both ends."""
    return f"[{_minus(interval.low)}, {_minus(interval.high)}]"


def _minus(value: float) -> str:
    return signed(value).removeprefix("+")


def p_text(cell: Cell) -> str:
    """Seeds of the difference, and the corrected p where it could be under 0.05 at all."""
    assert cell.against
    n, p = f"n={cell.against.n}", p_shown(cell)
    return n if p is None else f"p {'' if p[0] == '<' else '= '}{p} ({n})"


def p_shown(cell: Cell) -> str | None:
    """The corrected p where it could be under 0.05 at all."""
    if cell.p is None or cell.least_p is None or cell.least_p > LEVEL:
        return None
    return p_written(cell.p)


def p_written(p: float) -> str:
    """Three digits: `0.016`, or that it is less."""
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def to_latex(table: Table) -> str:
    """Complete `table` environments, as wide as the text of an article and of 10 rows each; notes under the last."""
    # Three lines a row: 10 of them, with long labels, and the notes are a page.
    chunks = [table.rows[i : i + 10] for i in range(0, len(table.rows), 10)]
    panels = [(shown, rows) for shown in _side_by_side(table) for rows in chunks]
    return template("table.tex.j2", table=table, panels=panels, wide=_wide(table))


def _wide(table: Table) -> bool:
    """Whether there are intervals in the cells."""
    return bool(table.across) or any(cell.against for cell in table.cells.values())


def _side_by_side(table: Table) -> list[list[Column]]:
    """The columns, as many at once as an article's text is wide: of the widest cells and of those that are here."""
    shown = columns(table)
    published = any(column.published for column in shown)
    if _wide(table):
        size = 2 if published else 3
        return [shown[i : i + size] for i in range(0, len(shown), size)]
    panels: list[list[Column]] = []
    room = 0.0
    for column in shown:
        width = 0.5 if column.switch else 1 + column.published
        if width > room:
            panels.append([])
            room = 6 if published else 5
        panels[-1].append(column)
        room -= width
    return panels


def to_html(table: Table) -> str:
    """A page of its own."""
    return template("table.html.j2", table=table, columns=columns(table))


def filtered_by(label: str, names: list[str]) -> bool:
    """Whether a label is one of these names, or says what of one it shows: `digits: top-1 (%)`."""
    return any(label == name or label.startswith(f"{name}: ") for name in names)


def template(name: str, folder: Path = TEMPLATES, **values: Any) -> str:
    """Fill in a template of a folder, or of this package. In HTML all text is escaped, and is made one line."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    html = name.endswith(".html.j2")
    environment = Environment(
        loader=FileSystemLoader([folder, TEMPLATES]),
        block_start_string="((*",
        block_end_string="*))",
        variable_start_string="(((",
        variable_end_string=")))",
        comment_start_string="((=",
        comment_end_string="=))",
        trim_blocks=True,
        keep_trailing_newline=True,
        undefined=StrictUndefined,
        autoescape=html,
        finalize=_printable if html else None,
    )
    environment.filters |= {"latex": escape_latex, "stack": _stack, "wrap": _wrap, "one_line": one_line}
    environment.tests["filtered_by"] = filtered_by
    return environment.get_template(name).render(**values)


def _printable(value: Any) -> Any:
    """Text of a record; what is markup already stays."""
    return one_line(value) if type(value) is str else value


def _stack(lines: list[str], align: str = "r", bold: bool = False) -> str:
    """Lines above one another in one cell of a LaTeX table."""
    texts = [escape_latex(line) for line in lines]
    if bold:
        texts[0] = rf"\textbf{{{texts[0]}}}"
    if len(texts) < 2:
        return "".join(texts)
    return rf"\begin{{tabular}}[t]{{@{{}}{align}@{{}}}}" + r" \\ ".join(texts) + r"\end{tabular}"


def _wrap(label: str, width: int) -> list[str]:
    return textwrap.wrap(one_line(label), width) or [""]


def to_markdown(table: Table) -> str:
    """A pipe table, lines of a cell apart by `<br>`."""
    shown = columns(table)
    heads = [""]
    for column in shown:
        heads += [escape_markdown(column.label)] + ["paper"] * column.published
    lines = [heads, ["---"] + ["--:"] * (len(heads) - 1)]
    for row in table.rows:
        line = [escape_markdown(row)]
        for column in shown:
            entry = column.entries[row]
            first, *others = [escape_markdown(text) for text in entry.ours]
            line.append("<br>".join([f"**{first}**" if entry.bold else first, *others]))
            if column.published:
                line.append("<br>".join(escape_markdown(text) for text in entry.paper))
        lines.append(line)
    text = [f"{escape_markdown(table.caption)}\n"]
    text += [f"| {' | '.join(line)} |" for line in lines]
    text += ["", *(f"- {escape_markdown(note)}" for note in table.notes)]
    return "\n".join(text) + "\n"


def to_csv(table: Table) -> str:
    """One line per cell, every number of it; empty where there is none. What is over several columns is not in it."""
    buffer = io.StringIO()
    names = "row column n mean std low high best baseline pairs difference difference_low difference_high "
    names += "bootstrap_low bootstrap_high p p_holm published published_spread published_n published_paper "
    names += "published_table published_provenance published_difference switch"
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(names.split())
    for (row, column), cell in table.cells.items():
        ours, pair, paper = cell.ours, cell.against, cell.published and cell.published.cell
        line: list[Any] = [row, column]
        line += [ours.n, ours.mean, ours.std, *_ends(ours.interval), int(cell.best)] if ours else [None] * 6
        line.append(table.baselines[row] if pair else None)
        line += [pair.n, pair.mean, *_ends(pair.interval), *_ends(pair.bootstrap)] if pair else [None] * 6
        line += [pair.p if pair and cell.p is not None else None, cell.p]
        line += [paper.value, paper.spread, paper.n] if paper else [None] * 3
        where = cell.published
        line += [where.publication.paper, where.table, where.cell.provenance] if where else [None] * 3
        line += [cell.published_difference, None if cell.switch is None else int(cell.switch)]
        # Ten digits: the last ones of a mean depend on the processor's order of summation.
        writer.writerow(
            [f"{x:.10g}" if isinstance(x, float) else one_line(x) if isinstance(x, str) else x for x in line]
        )
    return buffer.getvalue()


def _ends(interval: Interval | None) -> list[float | None]:
    return [interval.low, interval.high] if interval else [None, None]


FORMATS: dict[str, tuple[str, Callable[[Table], str]]] = {
    "latex": ("tex", to_latex),
    "markdown": ("md", to_markdown),
    "csv": ("csv", to_csv),
    "html": ("html", to_html),
}
"""By name: the file's ending, and what writes it."""
