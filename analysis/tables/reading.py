"""Summary of a table in a few sentences, computed from its numbers."""

from __future__ import annotations

from typing import Any

from vitinit.analysis.gains import LEVEL
from vitinit.analysis.stats import Interval, detectable
from vitinit.analysis.tables.table import Table
from vitinit.analysis.text import count, signed

SHOWN = 3
"""Upper limit of the columns that have a sentence, and of the rows named in it."""


def sentences(table: Table, named: Table | None = None) -> list[str]:
    """Return a sentence for each column: rows ahead of their own base and behind it, and what the seeds can show.

    Empty without differences.

    Args:
        table: main table of a study.
        named: table of the contrasts that its grid names; if given, sentences are on these alone, and by their p.
    """
    compared = (named or table).numbers.dropna(subset="difference")
    if table.study.lower_is_better:  # the sentences speak of gains
        return []
    tested = named is not None and any(head == "p" for _, head in named.heads)
    how = f"Holm-corrected p < {LEVEL}" if tested else "uncorrected 95 % intervals"
    lines = []
    for column, its in list(compared.groupby("column", sort=False))[:SHOWN]:
        shown = its["p_holm"] < LEVEL if tested else (its["difference_low"] > 0) | (its["difference_high"] < 0)
        of = its[shown].sort_values("difference", ascending=False)
        gains, losses = of[of["difference"] > 0], of[of["difference"] < 0]
        text = f"On {column}, gains ({how}): {_named(gains)}; losses: {_named(losses[::-1])}."
        sizes = [
            detectable(int(n), Interval(low, high))
            for n, low, high in its[["pairs", "difference_low", "difference_high"]].dropna().itertuples(index=False)
        ]
        if sizes:
            ends = " to ".join(dict.fromkeys(f"{size:.1f}" for size in (min(sizes), max(sizes))))
            text += f" {count(int(its['pairs'].max()), 'seed')} can show {ends} points (t test, power 0.8)."
        lines.append(text)
    return lines


def _named(lines: Any) -> str:
    """Name the first rows with their difference and its interval, and count the others."""
    columns = lines[["row", "difference", "difference_low", "difference_high"]].itertuples(index=False)
    texts = [f"{row} by {signed(its)} (95 % CI {signed(low)} to {signed(high)})" for row, its, low, high in columns]
    more = [f"{len(texts) - SHOWN} more"] if len(texts) > SHOWN else []
    return ", ".join([*texts[:SHOWN], *more]) or "none"
