"""Reading of a table: facts from its cells, as sentences by the template `reading.txt.j2`."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from vitinit.analysis.stats import Paired
from vitinit.analysis.tables.notes import compared_rows, mixed_code, not_initialisation_alone, without_record
from vitinit.analysis.tables.render import p_shown, template
from vitinit.analysis.tables.shared import LEVEL, Table, TableCell
from vitinit.analysis.text import count, one_line

SHOWN = 3
"""Upper limit of columns, rows or files named in one sentence."""


def without_numbers(table: Table) -> list[str]:
    """Return one line per reason why runs were skipped, failed, or may not be comparable."""
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


@dataclass(frozen=True)
class ColumnFacts:
    """Facts of one column of a table."""

    name: str
    ahead: list[tuple[str, Paired]]
    """Rows whose difference is significantly above 0, the largest first."""
    behind: list[str]
    without_interval: tuple[str, Paired] | None
    """Row with the largest difference, if no row has an interval."""
    limits: list[float]
    """Smallest detectable effect of each row at its number of seeds."""
    highest: tuple[str, float]
    equal: list[str]
    """Rows that do not differ significantly from the highest, if there are enough seeds for an interval."""


def sentences(table: Table, named: Table | None = None) -> list[str]:
    """Return sentences on rows ahead of their own base, the limits of the seeds, and the largest open difference.

    Empty without differences.

    Args:
        table: main table of a study.
        named: table of the contrasts that its grid names; if given, sentences on differences cover these alone.
    """
    from vitinit.analysis.stats import least_p

    differences = named or table
    pairs = {key: cell.against for key, cell in differences.cells.items() if cell.against}
    if not pairs or table.study.lower_is_better:  # the template speaks of gains
        return []
    columns = [column for column in table.columns if any(place == column for _, place in pairs)]
    tested = named is not None and any(p_shown(cell) for cell in named.cells.values())
    still = {key: pair for key, pair in pairs.items() if pair.interval is None or 0 in pair.interval}
    largest = max(still, key=lambda key: abs(still[key].mean)) if still else None
    seeds = sorted({pair.n for pair in pairs.values()})
    return template(
        "reading.txt.j2",
        columns=[_facts(table, differences, column, tested) for column in columns[:SHOWN]],
        others=max(0, len(columns) - SHOWN),
        shown=SHOWN,
        by_grid=named is not None,
        base=table.baseline,
        tested=tested,
        level=LEVEL,
        seeds=seeds,
        least_p=least_p(seeds[-1]),
        still_open=(*largest, still[largest]) if largest else None,
    ).splitlines()


def _facts(table: Table, differences: Table, column: str, tested: bool) -> ColumnFacts:
    from vitinit.analysis.stats import could_show

    cells = {row: cell for (row, place), cell in differences.cells.items() if place == column and cell.against}
    pairs = {row: cell.against for row, cell in cells.items() if cell.against}
    ordered = sorted(pairs, key=lambda row: -pairs[row].mean)
    sides = {row: _side(cells[row], tested) for row in ordered}
    own = {row: cell for (row, place), cell in table.cells.items() if place == column}
    means = {row: cell.ours.mean for row, cell in own.items() if cell.ours}
    top = max(means, key=lambda row: means[row])
    return ColumnFacts(
        name=column,
        ahead=[(row, pairs[row]) for row in ordered if sides[row] > 0],
        behind=[row for row in ordered if sides[row] < 0],
        without_interval=None if any(pair.interval for pair in pairs.values()) else (ordered[0], pairs[ordered[0]]),
        limits=[limit for row in ordered if (limit := could_show(pairs[row])) is not None],
        highest=(top, means[top]),
        equal=[row for row, cell in own.items() if cell.best and row != top] if own[top].best else [],
    )


def _side(cell: TableCell, tested: bool) -> int:
    """Return the sign of a significant difference, else 0: by corrected p if there is a test, else by the interval."""
    pair = cell.against
    if pair is None or pair.interval is None:
        return 0
    shown = p_shown(cell) is not None and (cell.p or 0.0) < LEVEL if tested else 0 not in pair.interval
    return (1 if pair.mean > 0 else -1) if shown else 0
