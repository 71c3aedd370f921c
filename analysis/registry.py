"""Tables, figures and curves that users add: their order, and errors in their files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from vitinit.initializers.errors import BrokenFile, VitinitError, located

LAST = 1_000
"""The place of an entry that names none: behind those that do, by name."""


@contextmanager
def blaming(what: str) -> Iterator[None]:
    """Say of an error that nobody meant where it is: in what, and at which line that is no library's.

    Raises:
        BrokenFile: with that line.
    """
    try:
        yield
    except VitinitError:
        raise
    except Exception as error:
        raise BrokenFile(f"{what}: {type(error).__name__}: {located(error)}") from error


def refuse(broken: Sequence[VitinitError]) -> None:
    """Raise what was wrong with some, when all others are done."""
    if broken:
        raise VitinitError("; ".join(dict.fromkeys(map(str, broken))))
