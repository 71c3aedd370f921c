"""How the tables, figures and curves are found: each lies in a file of its own, and the folder is looked through."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar

from vitinit.initializers.errors import BrokenFile, VitinitError, cause, located

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


class Entry(Protocol):
    """What a registry holds."""

    @property
    def name(self) -> str:
        """What tells it from the others."""

    @property
    def place(self) -> int:
        """Where users see it among the others: the lowest comes first."""


E = TypeVar("E", bound=Entry)


class Registry(Generic[E]):
    """What the files of one package have put into it."""

    def __init__(self, package: str) -> None:
        self.package = package
        self._entries: dict[str, E] = {}

    def put(self, entry: E) -> None:
        """Take in what a file registers as it is imported."""
        if entry.name in self._entries:
            raise BrokenFile(f"two files of {self.package} are called {entry.name!r}")
        self._entries[entry.name] = entry

    def entries(self) -> list[E]:
        """All of them, in the order of their places; every file of the package is imported for it."""
        for file in pkgutil.iter_modules(importlib.import_module(self.package).__path__, f"{self.package}."):
            if file.name != f"{self.package}.__main__":
                try:
                    importlib.import_module(file.name)
                except VitinitError:
                    raise
                except Exception as error:  # a file under construction may raise anything while it is imported
                    raise BrokenFile(f"{file.name} cannot be imported: {cause(error)}") from error
        return sorted(self._entries.values(), key=lambda entry: (entry.place, entry.name))
