"""Every table of a study: which there are, and one of them by name.

A table is one file of this folder with one function that computes it, decorated with `@TABLES.add`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from vitinit.analysis.frame import Study
from vitinit.analysis.registry import LAST, blaming
from vitinit.analysis.tables.shared import Table, check_baseline
from vitinit.initializers.errors import unknown_name
from vitinit.initializers.plugins import Registry


@dataclass(frozen=True)
class Asked:
    """Input of a table."""

    study: Study
    """With a finished run."""
    name: str
    """The table's own."""
    metric: str
    """`last` or `best` epoch."""
    baseline: str | None
    """The row that differences are to; None: each row's own base (see `own_bases`)."""
    rows: list[str] | None = None
    """The study's rows that are shown, in this order; None: all."""


@dataclass(frozen=True)
class Kind:
    """One table that a study may have."""

    name: str
    """End of its name, behind that of the study."""
    place: int
    allowed: Callable[[Study], bool]
    """Predicate: True if the records of a study with a finished run allow it."""
    compute: Callable[[Asked], Table]


class Tables(Registry[Kind]):
    """Registry of the tables that the files of this folder compute."""

    def add(
        self, ending: str, allowed: Callable[[Study], bool] = lambda study: True, place: int = LAST
    ) -> Callable[[Callable[[Asked], Table]], Callable[[Asked], Table]]:
        """Register the function that computes a table.

        Args:
            ending: Of its name, behind that of the study.
            allowed: Whether the records of a study with a finished run allow it.
            place: Among the tables of a study: the lowest comes first.
        """

        def register(compute: Callable[[Asked], Table]) -> Callable[[Asked], Table]:
            self.put(Kind(ending, place, allowed, compute))
            return compute

        return register


TABLES = Tables("table", "vitinit.analysis.tables", order=lambda kind: (kind.place, kind.name))


def names(study: Study) -> list[str]:
    """The tables that the records allow, in the order in which they are shown."""
    if not study.contents.done:
        return []
    return [study.name + kind.name for kind in TABLES.entries() if _allowed(kind, study)]


def _allowed(kind: Kind, study: Study) -> bool:
    with blaming(f"whether a study has a table {kind.name}"):
        return kind.allowed(study)


def build(
    study: Study,
    name: str | None = None,
    metric: str = "last",
    baseline: str | None = None,
    rows: list[str] | None = None,
) -> Table:
    """Compute one of a study's tables.

    Args:
        study: The records.
        name: One of `names`. Default: the study's own.
        metric: `last` or `best` epoch.
        baseline: Row label that differences are to, in the study's own table and in that of gaps. Default: each row's
            own base (see `own_bases`).
        rows: The study's rows that are shown, in this order, in tables that have a line for each. Default: all. What is
            tested stays the same; bold is the best of these.

    Raises:
        VitinitError: no finished run, no such table, or no row of that name.
        BrokenFile: its file has an error.
    """
    study.require_runs()
    check_baseline(baseline, [study])
    name = name or study.name
    for kind in TABLES.entries():
        if study.name + kind.name == name and _allowed(kind, study):
            with blaming(f"table {name}"):
                table = kind.compute(Asked(study, name, metric, baseline, rows))
                shown = [row for row in rows or [] if row in table.rows]
                cells = {key: cell for key, cell in table.cells.items() if key[0] in shown}
                return replace(table, rows=shown, cells=cells) if shown else table
    raise unknown_name("table", name, names(study))
