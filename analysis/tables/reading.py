"""Summary of a table in a few sentences, computed from its numbers."""

from __future__ import annotations

from vitinit.analysis.tables.render import template
from vitinit.analysis.tables.table import Table


def sentences(table: Table, named: Table | None = None) -> list[str]:
    """Return a sentence for each column, by the template `summary.txt.j2`: gains, losses, and what the seeds can show.

    Empty without differences.

    Args:
        table: main table of a study.
        named: table of the contrasts that its grid names; if given, sentences are on these alone.
    """
    compared = (named or table).numbers.dropna(subset="difference")
    columns = {
        column: its.sort_values("difference", ascending=False).to_dict("records")
        for column, its in compared.groupby("column", sort=False)
    }
    return template("summary.txt.j2", columns=columns, named=named).splitlines()
