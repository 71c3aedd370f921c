"""Summary of a table in a few sentences, computed from its numbers."""

from __future__ import annotations

import math
from typing import Any

from vitinit.analysis.tables.table import Table
from vitinit.analysis.text import count, signed

SHOWN = 3
"""Upper limit of the columns that have a sentence, and of the rows named in it."""


def sentences(table: Table, named: Table | None = None) -> list[str]:
    """Return a sentence for each column: rows ahead of their own base and behind it, and what the seeds can show.

    Empty without differences.

    Args:
        table: main table of a study.
        named: table of the contrasts that its grid names; if given, sentences are on these alone.
    """
    compared = (named or table).numbers.dropna(subset="difference")
    how = "comparisons of the grid" if named else "uncorrected 95 % intervals"
    lines = []
    for column, its in list(compared.groupby("column", sort=False))[:SHOWN]:
        of = its.sort_values("difference", ascending=False)
        gains, losses = of[of["verdict"] == "above"], of[of["verdict"] == "below"]
        text = f"On {column}, gains ({how}): {_named(gains)}; losses: {_named(losses[::-1])}."
        sizes = its.dropna(subset="difference_low")["detectable"]
        if len(sizes) and math.isfinite(sizes.max()):
            ends = " to ".join(dict.fromkeys(f"{size:.1f}" for size in (sizes.min(), sizes.max())))
            text += f" {count(int(its['pairs'].max()), 'seed')} can show {ends} points (power 0.8)."
        lines.append(text)
    return lines


def _named(lines: Any) -> str:
    """Name the first rows with their difference and its interval, and count the others."""
    columns = lines[["row", "difference", "difference_low", "difference_high"]].itertuples(index=False)
    texts = [f"{row} by {signed(its)} (95 % CI {signed(low)} to {signed(high)})" for row, its, low, high in columns]
    more = [f"{len(texts) - SHOWN} more"] if len(texts) > SHOWN else []
    return ", ".join([*texts[:SHOWN], *more]) or "none"
