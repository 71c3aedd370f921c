"""What a table says and does not say, in three sentences that are computed from its cells."""

from __future__ import annotations

from collections import Counter

from vitinit.analysis.tables.notes import compared_rows, mixed_code, not_initialisation_alone, without_record
from vitinit.analysis.tables.render import p_shown
from vitinit.analysis.tables.shared import LEVEL, Table, TableCell
from vitinit.analysis.text import capitalised, count, one_line, signed

SHOWN = 3
"""So many columns, rows or files are spoken of in one sentence."""


def without_numbers(table: Table) -> list[str]:
    """A line for each reason why runs were skipped, have failed, or may not be comparable."""
    contents = table.study.contents
    skipped = Counter(one_line(run.reason, 240) for run in contents.skipped.values())
    failed = Counter(one_line(f"{run.error}: {run.message}", 160) for run in contents.failed.values())
    lines = [f"{count(number, 'run')} skipped: {reason}" for reason, number in sorted(skipped.items())]
    lines += [f"{count(number, 'run')} failed: {reason}" for reason, number in sorted(failed.items())]
    lines += [f"No record of row {row}" for row in without_record(table.study)]
    lines += mixed_code(table)
    lines += not_initialisation_alone(table.study, compared_rows(table), values=False)
    lines += [f"Invalid file: {problem}" for problem in contents.problems[:SHOWN]]
    more = len(contents.problems) - SHOWN
    return lines + ([f"{count(more, 'more invalid file')} (--all)"] if more > 0 else [])


def sentences(table: Table, named: Table | None = None) -> list[str]:
    """Who is ahead of its own base, what this many seeds cannot tell, and what to look at; none without differences.

    Args:
        table: A study's own.
        named: The comparisons that its grid names: what is said of differences is then said of these alone.
    """
    differences = named or table
    if not _compared(differences):
        return []
    columns = [column for column in table.columns if any(place == column for _, place in _compared(differences))]
    shown = columns[:SHOWN]
    more = f"; {count(len(columns) - SHOWN, 'more column')} above" if len(columns) > SHOWN else ""
    tested = named is not None and any(p_shown(cell) for cell in named.cells.values())
    ahead = "; ".join(_ahead(differences, column, tested) for column in shown)
    how = f"at Holm's {LEVEL}" if tested else "(uncorrected)"
    lines = [
        f"Above 0 {how}, of the comparisons that the grid names: {ahead}{more}."
        if named
        else f"Ahead of {table.baseline or 'its base'} {how}: {ahead}{more}."
    ]
    lines.append(_cannot_tell(differences, columns))
    lines.append(f"Highest: {'; '.join(_highest(table, column) for column in shown)}{more}. {_look_at(differences)}")
    return lines


def _compared(table: Table) -> dict[tuple[str, str], TableCell]:
    return {key: cell for key, cell in table.cells.items() if cell.against}


def _of_column(table: Table, column: str) -> dict[str, TableCell]:
    """Rows with a difference, the largest first."""
    found = {row: cell for (row, place), cell in _compared(table).items() if place == column}
    return dict(sorted(found.items(), key=lambda item: -item[1].against.mean if item[1].against else 0.0))


def _gain(cell: TableCell) -> str:
    assert cell.against
    interval = cell.against.interval
    between = f" [{signed(interval.low)}, {signed(interval.high)}]" if interval else f", n={cell.against.n}"
    return f"{signed(cell.against.mean)} points{between}"


def _named(rows: list[str]) -> str:
    """By their names, or if they are many by their number."""
    return " and ".join(rows) if len(rows) < SHOWN else f"{len(rows)} others"


def _ahead(table: Table, column: str, tested: bool) -> str:
    cells = _of_column(table, column)
    if not any(cell.against and cell.against.interval for cell in cells.values()):
        row, cell = next(iter(cells.items()))
        return f"on {column} none (most {row}: {_gain(cell)})"
    ahead, behind = ([row for row, cell in cells.items() if _side(cell, tested) == side] for side in (1, -1))
    none = "none" if tested else "none whose interval is above 0"
    text = f"on {column} " + (f"{ahead[0]} by {_gain(cells[ahead[0]])}" if ahead else none)
    text += f", and {_named(ahead[1:])}" if ahead[1:] else ""
    return text + (f" (behind: {_named(behind)})" if behind else "")


def _side(cell: TableCell, tested: bool) -> int:
    """1 above 0, -1 below it, 0 where neither is shown: by the corrected p if there is a test, else by the interval."""
    pair = cell.against
    if pair is None or pair.interval is None:
        return 0
    shown = p_shown(cell) is not None and (cell.p or 0.0) < LEVEL if tested else 0 not in pair.interval
    return (1 if pair.mean > 0 else -1) if shown else 0


def _cannot_tell(table: Table, columns: list[str]) -> str:
    """The limits of the test and of the intervals with so few seeds."""
    from vitinit.analysis.stats import could_show, least_p

    pairs = {
        column: [cell.against for cell in _of_column(table, column).values() if cell.against] for column in columns
    }
    limits = {}
    for column, its in pairs.items():
        seen = [value for pair in its if (value := could_show(pair)) is not None]
        limits[column] = f"under {_span(seen)} points" if seen else "of any size"
    seeds = sorted({pair.n for its in pairs.values() for pair in its})
    shown = ", ".join(f"{limits[column]} on {column}" for column in columns[:SHOWN])
    many = f"{f'{seeds[0]} to ' if seeds[1:] else ''}{count(seeds[-1], 'seed')}"
    return (
        f"{capitalised(many)} cannot show differences {shown} (t test, power 0.8); a sign-flip test has "
        f"p = {least_p(seeds[-1]):.2g} or more."
    )


def _span(limits: list[float]) -> str:
    low, high = f"{min(limits):.1f}", f"{max(limits):.1f}"
    return low if low == high else f"{low} to {high}"


def _highest(table: Table, column: str) -> str:
    """The highest mean, and the rows that are not told apart from it where there are seeds enough to say so."""
    found = {row: cell for (row, place), cell in table.cells.items() if place == column}
    means = {row: cell.ours.mean for row, cell in found.items() if cell.ours}
    top = max(means, key=lambda row: means[row])
    equal = [row for row, cell in found.items() if cell.best and row != top] if found[top].best else []
    return f"on {column} {top} ({means[top]:.2f})" + (f", not told apart from {_named(equal)}" if equal else "")


def _look_at(table: Table) -> str:
    """The largest difference whose interval contains 0, or that has none."""
    cells = _compared(table)
    pairs = {key: cell.against for key, cell in cells.items() if cell.against}
    still = {key: pair for key, pair in pairs.items() if pair.interval is None or 0 in pair.interval}
    if not still:
        return "Every interval of a difference lies on one side of 0."
    row, column = max(still, key=lambda key: abs(still[key].mean))
    return f"Largest still open: {row} on {column}, {_gain(cells[row, column])}."
