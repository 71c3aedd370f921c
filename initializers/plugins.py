"""The registry of whatever is one file each: in a folder of ours, or behind an entry point of an installed package; and
files of one's own.

A grid says `my_method.py:Whiten`, relative to itself. A spec holds `my_method.py:Whiten@` and 16 hex digits of the
sha256 of the file: an edited file is another run, and the folder that it lies in changes nothing. Imports no torch.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import importlib.util
import inspect
import os
import pkgutil
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeVar, cast

from vitinit.initializers.errors import BrokenFile, ExitRequested, VitinitError, cause, os_errors, unknown_name

INITIALIZERS, DATASETS, MODELS, ADAPTERS = GROUPS = (
    "vitinit.initializers",
    "vitinit.datasets",
    "vitinit.models",
    "vitinit.adapters",
)
"""The entry point groups in which packages name their own."""
FOLDERS = "VITINIT_METHODS"
"""Environment variable: folders with files of one's own. `vitinit rank` sets it for the processes that it starts."""


def look_into_own_folders() -> None:
    """Let Python look into `FOLDERS`, last: a file there called like a module of ours, or of a library, is not it."""
    folders = os.environ.get(FOLDERS, "").split(os.pathsep)
    sys.path.extend(folder for folder in folders if folder and folder not in sys.path)


@contextmanager
def contained(what: str) -> Iterator[None]:
    """Turn an exit that a plug-in asks for (`sys.exit`) into an error; Ctrl-C goes on.

    Args:
        what: who asks for it, as an error message begins.

    Raises:
        ExitRequested: instead.
    """
    try:
        yield
    except SystemExit as error:
        said = f": {error}" if str(error) else ""
        raise ExitRequested(f"{what} raised SystemExit{said}, which would end the whole program") from error


def modules(package: str) -> Iterator[ModuleType]:
    """Every file of a package, named as package.folder, imported, in the order of their names.

    Raises:
        BrokenFile: one cannot be imported.
    """
    for found in pkgutil.iter_modules(importlib.import_module(package).__path__, f"{package}."):
        if found.name == f"{package}.__main__":
            continue
        try:
            with contained(found.name):
                module = importlib.import_module(found.name)
            yield module
        except ExitRequested as error:
            raise BrokenFile(f"{found.name} cannot be imported: {cause(error)}") from error
        except VitinitError:
            raise
        except Exception as error:  # a file under construction may raise anything while it is imported
            raise BrokenFile(f"{found.name} cannot be imported: {cause(error)}") from error


def entry_points(group: str) -> Iterator[tuple[str, Any]]:
    """Load the entry points of a group from installed packages: each with its place, as package.module:NAME.

    Raises:
        VitinitError: one cannot be loaded.
    """
    for entry in importlib.metadata.entry_points(group=group):
        try:
            with contained("it"):
                loaded = entry.load()
            yield entry.value, loaded
        except Exception as error:  # a plug-in may raise anything while it is imported
            raise VitinitError(
                f"entry point {entry.name!r} ({entry.value}) cannot be loaded: {cause(error)}"
            ) from error


T = TypeVar("T")
U = TypeVar("U")


def concrete(base: type) -> Callable[[object], bool]:
    """Return a predicate of the classes below another that have no abstract method left."""
    return lambda value: inspect.isclass(value) and issubclass(value, base) and not inspect.isabstract(value)


class Registry(Generic[T]):
    """Entries by name: those of the files of some packages, and those that an entry point group names.

    Args:
        noun: An entry, in messages.
        packages: Their files are imported when an entry is first asked for, and not before.
        group: The entry point group in which installed packages name their own.
        wanted: Values that are entries, in messages.
        accepts: Whether a value is an entry.
        collect: Take every such value of a file. Otherwise files register entries themselves, by a decorator that
            calls `put`.
        check: Refuses, by a VitinitError, an entry and where it is from.
        name: The name of an entry, where `put` is not told.
        order: Sort key of entries; default: the name.
    """

    def __init__(
        self,
        noun: str,
        *packages: str,
        group: str = "",
        wanted: str = "",
        accepts: Callable[[object], bool] = lambda value: True,
        collect: bool = False,
        check: Callable[[T, str], None] = lambda entry, where: None,
        name: Callable[[T], str] = lambda entry: entry.name,  # type: ignore[attr-defined]
        order: Callable[[T], Any] | None = None,
    ) -> None:
        self.noun, self.packages, self.group, self.wanted = noun, packages, group, wanted
        self.accepts, self.collect, self.check, self.name, self.order = accepts, collect, check, name, order
        self.known: dict[str, T] = {}
        self.origins: dict[str, str] = {}
        self.searched = False

    def put(self, entry: T, where: str = "", name: str | None = None) -> T:
        """Add an entry; a class or function of the same module and name, as of a notebook's cell, is replaced.

        Args:
            entry: What is registered.
            where: Where it is from; default: module and name of the class or function that it is.
            name: Its name; default: what it says itself.

        Raises:
            VitinitError: It is no valid entry, or its name is taken.
        """
        origin = f"{entry.__module__}.{entry.__qualname__}" if hasattr(entry, "__qualname__") else where
        self.check(entry, where or origin)
        name = self.name(entry) if name is None else name
        other = self.known.get(name, entry)
        if other is not entry and not (origin and self.origins.get(name) == origin):
            where = f"{self.origins.get(name)} and in {where or origin}" if where or origin else self.packages[0]
            raise VitinitError(f"two {self.noun}s are called {name!r}: in {where}")
        self.known[name], self.origins[name] = entry, origin
        return entry

    def named(self, name: str) -> Callable[[U], U]:
        """Return a decorator that adds a class under a name."""

        def add(entry: U) -> U:
            self.put(cast(T, entry), name=name)
            return entry

        return add

    def search(self) -> None:
        """Import the files of the packages and load the entry points, if that has not been done.

        Raises:
            BrokenFile: One of them cannot be used.
        """
        if self.searched:
            return
        try:
            for package in self.packages:
                for module in modules(package):
                    for attribute, value in list(vars(module).items()) if self.collect else ():
                        if self.accepts(value):
                            self.put(value, f"{module.__name__}.{attribute}")
            for where, value in entry_points(self.group) if self.group else ():
                self.load(value, where)
        except VitinitError as error:
            raise error if isinstance(error, BrokenFile) else BrokenFile(str(error)) from error
        self.searched = True

    def load(self, value: Any, where: str) -> T:
        """Add a value that is named from outside.

        Raises:
            VitinitError: It is something else, or its name is taken.
        """
        if not self.accepts(value):
            raise VitinitError(f"{where} is not {self.wanted}")
        return self.put(value, where)

    def by_name(self) -> dict[str, T]:
        """All entries, in their order."""
        self.search()
        return dict(sorted(self.known.items(), key=lambda item: self.order(item[1]) if self.order else item[0]))

    def entries(self) -> list[T]:
        """All entries, in their order."""
        return list(self.by_name().values())

    def get(self, name: str) -> T:
        """The entry of this name.

        Raises:
            VitinitError: There is none.
        """
        self.search()
        if name not in self.known:
            raise unknown_name(self.noun, name, self.known)
        return self.known[name]


# --- files of one's own -----------------------------------------------------------------------------------------------

PREFIX = "vitinit_own_file_"
"""Prefix of the names of such modules in this process."""
IN_A_GRID = re.compile(r"(?P<path>.+\.py):(?P<attribute>\w+)(@(?P<digest>[0-9a-f]{16}))?", re.DOTALL)
PINNED = re.compile(r"(?P<file>[^/\\]+\.py):(?P<attribute>\w+)@(?P<digest>[0-9a-f]{16})")


def in_a_file(name: str) -> bool:
    """Return True for `path/to/file.py:NAME`, with or without the digest."""
    return IN_A_GRID.fullmatch(name) is not None


def is_pinned(name: str) -> bool:
    """Return True for a name as a spec holds it."""
    return PINNED.fullmatch(name) is not None


def pinned(name: str, folder: Path) -> str:
    """Return the name with the file's content, from `path/to/file.py:NAME`; any other name stays as it is.

    The file's folder is remembered, also for processes that are started.

    Args:
        name: as a grid has it.
        folder: that relative paths begin in.

    Raises:
        VitinitError: there is no such file, nothing in it has this name, or its content is not the one that is named.
    """
    match = IN_A_GRID.fullmatch(name)
    if not match:
        if re.search(r"\.py(:|$)", name):
            raise VitinitError(f"{name!r}: write path/to/file.py:NAME")
        return name
    file = (folder / match["path"]).absolute()
    with os_errors(f"cannot read {file}"):
        content = file.read_bytes()
    text = content.decode("utf-8", errors="replace")
    if not re.search(rf"\b{re.escape(match['attribute'])}\b", text):
        defined = re.findall(r"^(?:class|def) (\w+)|^(\w+) *=", text, re.MULTILINE)
        raise unknown_name(f"name in {match['path']}", match["attribute"], (one or other for one, other in defined))
    digest = _digest(content)
    if match["digest"] not in (None, digest):
        raise VitinitError(f"{name}: {file} has another content now ({digest}); leave @{match['digest']} out to use it")
    before = filter(None, os.environ.get(FOLDERS, "").split(os.pathsep))
    os.environ[FOLDERS] = os.pathsep.join(dict.fromkeys([str(file.parent), *before]))
    return f"{file.name}:{match['attribute']}@{digest}"


def load(name: str) -> Any:
    """Return what a name as a spec holds it stands for.

    Raises:
        VitinitError: no file with this content is here, or it cannot be imported, or has no such name.
    """
    match = PINNED.fullmatch(name)
    assert match, name
    module = _module(match["file"], match["digest"])
    if not hasattr(module, match["attribute"]):
        raise unknown_name(f"name in {match['file']}", match["attribute"], (n for n in vars(module) if n[0] != "_"))
    return getattr(module, match["attribute"])


def same_file(one: str, other: str) -> bool:
    """Return True where two modules are a file of one's own before and after it was edited."""
    return one.startswith(PREFIX) and one.rpartition("_")[0] == other.rpartition("_")[0]


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def _module(file: str, digest: str) -> ModuleType:
    called = f"{PREFIX}{re.sub(r'[^0-9A-Za-z]', '_', file)}_{digest}"
    if called in sys.modules:
        return sys.modules[called]
    folders = [*filter(None, os.environ.get(FOLDERS, "").split(os.pathsep)), str(Path.cwd())]
    for folder in dict.fromkeys(folders):
        path = Path(folder) / file
        if path.is_file() and _digest(path.read_bytes()) == digest:
            return import_file(path, called)
    raise VitinitError(
        f"there is no {file} with the content that is named ({digest}); it was looked for in {', '.join(folders)}; "
        f"{FOLDERS}=FOLDER says where it is"
    )


def import_file(path: Path, called: str) -> ModuleType:
    """Import a file as a module of this name.

    Raises:
        BrokenFile: it raises an error.
    """
    look_into_own_folders()  # for what it imports from beside it
    found = importlib.util.spec_from_file_location(called, path)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules[called] = module
    try:
        with contained(path.name):
            found.loader.exec_module(module)
    except Exception as error:  # a file under construction may raise anything while it is imported
        del sys.modules[called]
        raise BrokenFile(f"{path} cannot be imported: {cause(error)}") from error
    return module
