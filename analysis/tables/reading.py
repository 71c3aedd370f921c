"""Summary of a table in a few sentences, computed from its numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from math import isnan
from typing import Any

from vitinit.analysis.frame import Study
from vitinit.analysis.gains import LEVEL
from vitinit.analysis.stats import Interval, detectable
from vitinit.analysis.tables.notes import mixed_code, without_record
from vitinit.analysis.tables.table import Table
from vitinit.analysis.text import count, one_line, signed

Line = Mapping[Hashable, Any]
"""Numbers of one cell, NaN where it has none."""
SHOWN = 3
"""Upper limit of columns, rows or files named in one sentence."""


def without_numbers(study: Study) -> list[str]:
    """Return one line per reason why runs were skipped, failed, or may not be comparable."""
    contents = study.contents
    skipped = Counter(one_line(run.reason, 240) for run in contents.skipped.values())
    failed = Counter(one_line(f"{run.error}: {run.message}", 160) for run in contents.failed.values())
    lines = [f"{count(number, 'run')} skipped: {reason}" for reason, number in sorted(skipped.items())]
    lines += [f"{count(number, 'run')} failed: {reason}" for reason, number in sorted(failed.items())]
    lines += [f"No record of row {row}" for row in without_record(study)]
    lines += mixed_code(study)
    lines += [f"Invalid file: {problem}" for problem in contents.problems[:SHOWN]]
    more = len(contents.problems) - SHOWN
    return lines + ([f"{count(more, 'more invalid file')} (--all)"] if more > 0 else [])


def sentences(table: Table, named: Table | None = None) -> list[str]:
    """Return sentences on rows ahead of their own base, the limits of the seeds, and the largest open difference.

    Empty without differences.

    Args:
        table: main table of a study.
        named: table of the contrasts that its grid names; if given, sentences on differences cover these alone.
    """
    compared = (named or table).numbers.dropna(subset="difference").to_dict("records")
    if not compared or table.study.lower_is_better:  # the sentences speak of gains
        return []
    tested = named is not None and any(head == "p" for _, head in named.heads)
    by_column: dict[str, list[Line]] = {}
    for line in compared:
        by_column.setdefault(line["column"], []).append(line)
    others = len(by_column) - SHOWN
    more = f"; {count(others, 'more column')} in the table" if others > 0 else ""
    shown = list(by_column.items())[:SHOWN]
    ahead = "; ".join(f"on {column} {_ahead(its, tested)}" for column, its in shown)
    limits = ", ".join(f"{under} on {column}" for column, its in shown if (under := _limits(its)))
    best = "; ".join(f"on {column} {_best(table, column)}" for column, _ in shown)
    how = f"Holm-corrected p < {LEVEL}" if tested else "uncorrected"
    said = f"Contrasts of the grid with a gain ({how})" if named else f"Rows with a gain over their base ({how})"
    still = [line for line in compared if not _side(line, tested=False)]
    largest = max(still, key=lambda line: abs(line["difference"]), default=None)
    last = "Every interval of a difference lies on one side of 0."
    if largest:
        last = f"Largest undecided difference: {largest['row']} on {largest['column']}, {_gain(largest)}."
    sizes = sorted({int(line["pairs"]) for line in compared})
    seeds = f"{sizes[0]} to {count(sizes[-1], 'seed')}" if sizes[1:] else count(sizes[0], "seed")
    limited = f"Smallest detectable difference with {seeds}: {limits} (t test, power 0.8)."
    return [
        f"{said}: {ahead}{more}.",
        limited if limits else f"No interval: that takes at least 3 common seeds, and there are {sizes[-1]}.",
        f"Best: {best}{more}. {last}",
    ]


def _gain(line: Line) -> str:
    low, high = line["difference_low"], line["difference_high"]
    between = f"n={line['pairs']:g}" if isnan(low) else f"95 % CI {signed(low)} to {signed(high)}"
    return f"{signed(line['difference'])} points ({between})"


def _named(rows: Sequence[str]) -> str:
    return " and ".join(rows) if len(rows) < SHOWN else f"{len(rows)} others"


def _side(line: Line, tested: bool) -> int:
    """Return the sign of a significant difference, else 0: by corrected p if there is a test, else by the interval."""
    shown = line["p_holm"] < LEVEL if tested else line["difference_low"] > 0 or line["difference_high"] < 0
    return (1 if line["difference"] > 0 else -1) if shown else 0


def _ahead(lines: Sequence[Line], tested: bool) -> str:
    """Return the rows of a column whose difference is significantly above 0, and below."""
    lines = sorted(lines, key=lambda line: -line["difference"])
    if all(isnan(line["difference_low"]) for line in lines):
        return f"none (most {lines[0]['row']}: {_gain(lines[0])})"
    ahead = [line for line in lines if _side(line, tested) > 0]
    behind = [line["row"] for line in lines if _side(line, tested) < 0]
    text = f"{ahead[0]['row']} by {_gain(ahead[0])}" if ahead else "none"
    text += f", and {_named([line['row'] for line in ahead[1:]])}" if ahead[1:] else ""
    return f"{text}, behind: {_named(behind)}" if behind else text


def _limits(lines: Sequence[Line]) -> str:
    """Return the smallest effects that the rows of a column could show; nothing where no row has an interval."""
    sizes = [
        detectable(int(line["pairs"]), Interval(line["difference_low"], line["difference_high"]))
        for line in lines
        if not isnan(line["difference_low"])
    ]
    if not sizes:
        return ""
    return f"{' to '.join(dict.fromkeys(f'{size:.1f}' for size in (min(sizes), max(sizes))))} points"


def _best(table: Table, column: str) -> str:
    """Return the row with the highest mean of a column, and those that do not differ significantly from it."""
    lines = [line for line in table.numbers.dropna(subset="mean").to_dict("records") if line["column"] == column]
    top = max(lines, key=lambda line: line["mean"])
    equal = [line["row"] for line in lines if line["best"] == 1 and line is not top] if top["best"] == 1 else []
    return f"{top['row']} ({top['mean']:.2f})" + (f", not significantly above {_named(equal)}" if equal else "")
