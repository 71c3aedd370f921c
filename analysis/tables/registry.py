"""Every table of a study: which there are, and one of them by name.

A table is one file of this folder with one function that computes it, decorated with `@TABLES.add`.
"""

from collections.abc import Callable
from typing import NamedTuple

from vitinit.analysis.command import blaming
from vitinit.analysis.frame import Study
from vitinit.analysis.tables.table import Asked, Table
from vitinit.initializers.errors import unknown_name
from vitinit.initializers.plugins import Registry

Compute = Callable[[Asked], Table]
"""Function that computes a table."""


class Kind(NamedTuple):
    """One table that a study may have."""

    name: str
    """End of its name, behind that of the study."""
    place: int
    allowed: Callable[[Study], bool]
    """Predicate: True if the records of a study with a finished run allow it."""
    compute: Compute


class Tables(Registry[Kind]):
    """Registry of the tables that the files of this folder compute."""

    def add(
        self, ending: str, allowed: Callable[[Study], bool] = lambda study: True, place: int = 1_000
    ) -> Callable[[Compute], Compute]:
        """Register the function that computes a table.

        Args:
            ending: Of its name, behind that of the study.
            allowed: Whether the records of a study with a finished run allow it.
            place: Among the tables of a study: the lowest comes first.
        """
        return lambda compute: self.put(Kind(ending, place, allowed, compute)).compute


TABLES = Tables("table", ("vitinit.analysis.tables",), order=lambda entry: (entry.place, entry.name))


def names(study: Study) -> dict[str, Kind]:
    """Return the tables that the records allow by name, in the order in which they are shown."""
    allowed = {}
    for entry in TABLES.entries() if study.contents.done else ():
        with blaming(f"whether a study has a table {entry.name}"):
            if entry.allowed(study):
                allowed[study.name + entry.name] = entry
    return allowed


def build(study: Study, name: str | None = None, gain: bool | None = None) -> Table:
    """Compute one of a study's tables.

    Args:
        study: The records.
        name: One of `names`. Default: the study's own.
        gain: True if differences are shown in tables that can do without. Default: if there is a baseline, or one
            column alone.

    Raises:
        VitinitError: no finished run, or no such table.
        BrokenFile: its file has an error.
    """
    study.require_runs()
    gain = study.baseline is not None or len(study.columns) == 1 if gain is None else gain
    name, entries = name or study.name, names(study)
    if name not in entries:
        raise unknown_name("table", name, entries)
    with blaming(f"table {name}"):
        return entries[name].compute(Asked(study, name, gain))
