"""How the tables, figures and curves are found: each lies in a file of its own, and the folder is looked through."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Generic, Protocol, TypeVar

LAST = 1_000
"""The place of an entry that names none: behind those that do, by name."""


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
            raise ValueError(f"two entries {entry.name!r} in {self.package}")
        self._entries[entry.name] = entry

    def entries(self) -> list[E]:
        """All of them, in the order of their places; every file of the package is imported for it."""
        folder = importlib.import_module(self.package).__path__
        for file in pkgutil.iter_modules(folder):
            if file.name != "__main__":
                importlib.import_module(f"{self.package}.{file.name}")
        return sorted(self._entries.values(), key=lambda entry: (entry.place, entry.name))
