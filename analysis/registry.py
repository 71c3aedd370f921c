"""How the tables, figures and curves are found: each lies in a file of its own, and the folder is looked through."""

from __future__ import annotations

import importlib
import pkgutil
import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from initializers.errors import VitinitError

LAST = 1_000
"""The place of an entry that names none: behind those that do, by name."""


class Broken(VitinitError):
    """A file of a registry's folder has an error; what the others give is not affected."""


@contextmanager
def blaming(what: str) -> Iterator[None]:
    """Say of an error that nobody meant where it is: in what, and at which line that is no library's.

    Raises:
        Broken: with that line.
    """
    try:
        yield
    except VitinitError:
        raise
    except Exception as error:
        frames = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
        frames += [(error.filename or "", error.lineno)] if isinstance(error, SyntaxError) else []
        libraries = tuple(map(sysconfig.get_path, ("stdlib", "purelib", "platlib")))
        here = str(Path(__file__).parent)
        file, number = [each for each in frames if each[0].startswith(here) or not each[0].startswith(libraries)][-1]
        place = f"{Path(file).name}:{number}"
        raise Broken(f"{what}: {type(error).__name__}: {error} ({place})") from error


def refuse(broken: list[Broken]) -> None:
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
            raise Broken(f"two files of {self.package} are called {entry.name!r}")
        self._entries[entry.name] = entry

    def entries(self) -> list[E]:
        """All of them, in the order of their places; every file of the package is imported for it."""
        folder = importlib.import_module(self.package).__path__
        for file in pkgutil.iter_modules(folder):
            if file.name != "__main__":
                with blaming(f"{self.package}.{file.name} cannot be imported"):
                    importlib.import_module(f"{self.package}.{file.name}")
        return sorted(self._entries.values(), key=lambda entry: (entry.place, entry.name))
