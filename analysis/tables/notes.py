"""Captions and notes that several tables share, computed from records."""

from collections.abc import Iterable, Mapping

from vitinit.analysis.frame import Study
from vitinit.analysis.published import Publication, context, numbers, read_in_part
from vitinit.analysis.rows import Key, differing
from vitinit.analysis.tables.table import Table, TableCell


def subject(study: Study, first_row: bool = False, when: str = "") -> str:
    """Return what a table shows, to begin its caption: `Top-1 accuracy (%) on digits after the last epoch`.

    Args:
        study: The records.
        first_row: True where a line compares two rows.
        when: `each` where columns are epochs.
    """
    return study.note("subject", first_row=first_row, when=when or study.when)[0]


def not_initialisation_alone(study: Study, compared: Iterable[tuple[str, str]]) -> list[str]:
    """Return a note on rows whose model or recipe also differs from their row of comparison."""
    return study.note("alone", compared=compared, differing=differing)


def beside(study: Study, cells: Mapping[Key, TableCell], paper: tuple[Publication, str] | None = None) -> list[str]:
    """Return the notes on the published numbers of a table, with one line for those that are context.

    Args:
        study: The records.
        cells: Those of the table.
        paper: The paper and its table that are read with this table. Default: those that name the study.
    """
    publication = paper or context(study.name)
    known = numbers(*publication) if publication else []
    return study.note("published", cells=cells.values(), numbers=known, read_in_part=read_in_part)


def sentences(table: Table, named: Table | None = None) -> list[str]:
    """Return a sentence for each column, by the template `summary.txt.j2`: gains, losses, and what the seeds can show.

    Empty without differences.

    Args:
        table: main table of a study.
        named: table of the contrasts that its grid names; if given, sentences are on these alone.
    """
    return table.study.note("summary", compared=(named or table).frame.dropna(subset="difference"), named=named)
