"""The registry of whatever is one file each: in a folder of ours, or behind an entry point of an installed package; and
files of one's own.

A grid says `my_method.py:Whiten`, relative to itself. A spec holds `my_method.py:Whiten@` and 16 hex digits of the
sha256 of the file: an edited file is another run, and the folder that it lies in changes nothing. Imports no torch.
"""

import hashlib
import importlib
import importlib.metadata
import importlib.util
import inspect
import os
import pkgutil
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeVar

from vitinit.initializers.errors import BrokenFile, VitinitError, cause, os_errors, unknown_name

INITIALIZERS, DATASETS, MODELS, ADAPTERS = GROUPS = (
    "vitinit.initializers",
    "vitinit.datasets",
    "vitinit.models",
    "vitinit.adapters",
)
"""The entry point groups in which packages name their own."""
FOLDERS = "VITINIT_METHODS"
"""Environment variable: folders with files of one's own. `vitinit rank` sets it for the processes that it starts."""
OWN_FILE = re.compile(r"(?P<path>.+\.py):(?P<attribute>\w+)(@(?P<digest>[0-9a-f]{16}))?", re.DOTALL)
T = TypeVar("T")
OF_OTHERS: set[str] = set()
"""Names registered in this process by code that is not ours, and by no entry point: no other process knows them."""


@contextmanager
def imported(what: str, raised: type[VitinitError] = BrokenFile) -> Iterator[None]:
    """Turn whatever imported code of others raises into an error of one line."""
    try:
        yield
    except BrokenFile:
        raise
    except (Exception, SystemExit) as error:
        raise raised(f"{what}: {cause(error)}") from error


def concrete(base: type) -> Callable[[object], bool]:
    """Return a predicate of the classes below another that have no abstract method left."""
    return lambda value: inspect.isclass(value) and issubclass(value, base) and not inspect.isabstract(value)


@dataclass(eq=False)
class Registry(Generic[T]):
    """Entries by name: those of the files of some packages, and those that an entry point group names."""

    noun: str
    """An entry, in messages."""
    packages: tuple[str, ...] = ()
    """Their files are imported when an entry is first asked for, and not before."""
    group: str = ""
    """The entry point group in which installed packages name their own."""
    wanted: str = ""
    """Values that are entries, in messages."""
    accepts: Callable[[object], bool] = lambda value: True
    """Return True if a value is an entry."""
    collect: bool = False
    """Take every such value of a file. Otherwise files register entries themselves, by a decorator that calls `put`."""
    check: Callable[[T, str], object] = lambda entry, where: None
    """Refuses, by a VitinitError, an entry and where it is from."""
    name: Callable[[T], str] = lambda entry: entry.name  # type: ignore[attr-defined]
    """The name of an entry, where `put` is not told."""
    order: Callable[[T], Any] | None = None
    """Sort key of entries; default: the name."""
    searched: bool = False
    known: dict[str, T] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)

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
        origin = re.sub(r"_[0-9a-f]{16}\.", ".", origin)  # a file of one's own may have been edited
        self.check(entry, where or origin)
        name = name or self.name(entry)
        if self.known.get(name, entry) is not entry and self.origins.get(name) != origin:
            raise VitinitError(
                f"two {self.noun}s are called {name!r}: in {self.origins.get(name) or self.packages[0]} and in "
                f"{where or origin}"
            )
        self.known[name], self.origins[name] = entry, origin
        if not entry.__module__.startswith("vitinit."):
            OF_OTHERS.add(name)
        return entry

    def named(self, name: str) -> Callable[[Any], Any]:
        """Return a decorator that adds a class under a name."""
        return lambda entry: self.put(entry, name=name)

    def load(self, value: Any, where: str) -> T:
        """Add a value that is named from outside.

        Raises:
            VitinitError: It is something else, or its name is taken.
        """
        self.search()
        return self.put(self._accepted(value, where), where)

    def _accepted(self, value: Any, where: str) -> T:
        if not self.accepts(value):
            raise VitinitError(f"{where} is not {self.wanted}")
        self.check(value, where)
        return value

    def search(self) -> None:
        """Import the files of the packages and load the entry points, if that has not been done.

        An entry point that cannot be used is a warning.

        Raises:
            BrokenFile: A file of the packages cannot be used.
        """
        if self.searched:
            return
        for package in self.packages:
            for file in pkgutil.iter_modules(importlib.import_module(package).__path__, f"{package}."):
                if file.name.endswith(".__main__"):
                    continue
                with imported(f"{file.name} cannot be imported"):
                    namespace = vars(importlib.import_module(file.name))
                    for attribute, value in namespace.items() if self.collect else ():
                        if self.accepts(value):
                            self.put(value, f"{file.name}.{attribute}")
        self.searched = True
        for entry in importlib.metadata.entry_points(group=self.group):
            try:
                with imported(f"entry point {entry.name!r} ({entry.value}) cannot be loaded"):
                    OF_OTHERS.discard(self.name(self.load(entry.load(), entry.value)))
            except BrokenFile as error:
                warnings.warn(str(error), stacklevel=2)

    def by_name(self) -> dict[str, T]:
        """All entries that can be used, in their order."""
        self.search()
        return dict(sorted(self.known.items(), key=lambda item: self.order(item[1]) if self.order else item[0]))

    def entries(self) -> list[T]:
        """All entries, in their order."""
        return list(self.by_name().values())

    def get(self, name: str) -> T:
        """The entry of this name, or of a file of one's own.

        Raises:
            VitinitError: There is none.
        """
        if is_pinned(name):
            return self._accepted(load(name), name)
        self.search()
        if name not in self.known:
            raise unknown_name(self.noun, name, self.known)
        return self.known[name]


# --- files of one's own -----------------------------------------------------------------------------------------------


def in_a_file(name: str) -> bool:
    """Return True for `path/to/file.py:NAME`, with or without the digest."""
    return OWN_FILE.fullmatch(name) is not None


def is_pinned(name: str) -> bool:
    """Return True for a name as a spec holds it: a file without its folder, with the digest."""
    match = OWN_FILE.fullmatch(name)
    return match is not None and match["digest"] is not None and "/" not in name


def pinned(name: str, folder: Path) -> str:
    """Return the name with the file's content, from `path/to/file.py:NAME`; any other name stays as it is.

    The file's folder is remembered, also for processes that are started.

    Args:
        name: as a grid has it.
        folder: that relative paths begin in.

    Raises:
        VitinitError: there is no such file, or its content is not the one that is named.
    """
    match = OWN_FILE.fullmatch(name)
    if not match:
        if re.search(r"\.py(:|$)", name):
            raise VitinitError(f"{name!r}: write path/to/file.py:NAME")
        return name
    file = (folder / match["path"]).absolute()
    with os_errors(f"cannot read {file}"):
        digest = short_hash(file.read_bytes())
    if match["digest"] not in (None, digest):
        raise VitinitError(f"{name}: {file} has another content now ({digest}); leave @{match['digest']} out to use it")
    os.environ[FOLDERS] = os.pathsep.join(dict.fromkeys([str(file.parent), *_folders()]))
    return f"{file.name}:{match['attribute']}@{digest}"


def load(name: str) -> Any:
    """Return what `package.module:NAME`, or a file's name as a spec holds it, stands for.

    Raises:
        VitinitError: it cannot be imported, or no file with this content is here, or it has no such name.
    """
    # last: a file there called like a library is not it
    sys.path.extend(folder for folder in _folders() if folder not in sys.path)
    home, _, attribute = name.partition("@")[0].partition(":")
    if is_pinned(name):
        namespace = vars(_module(home, name.rpartition("@")[2]))
    elif in_a_file(name):
        raise VitinitError(f"{name!r}: a grid and vitinit rank take a file; in Python import it and give the name")
    else:
        with imported(f"{name!r} cannot be loaded", VitinitError):
            namespace = vars(importlib.import_module(home))
    if attribute not in namespace:
        raise unknown_name(f"name in {home}", attribute, (name for name in namespace if name[0] != "_"))
    return namespace[attribute]


def _folders() -> list[str]:
    return [folder for folder in os.environ.get(FOLDERS, "").split(os.pathsep) if folder]


def short_hash(content: bytes) -> str:
    """Return 16 hex digits of the sha256."""
    return hashlib.sha256(content).hexdigest()[:16]


def _module(file: str, digest: str) -> ModuleType:
    called = f"vitinit_own_file_{re.sub(r'[^0-9A-Za-z]', '_', file)}_{digest}"
    if called in sys.modules:
        return sys.modules[called]
    folders = [*_folders(), str(Path.cwd())]
    for path in (Path(folder) / file for folder in folders):
        if path.is_file() and short_hash(path.read_bytes()) == digest:
            spec: Any = importlib.util.spec_from_file_location(called, path)
            module = sys.modules[called] = importlib.util.module_from_spec(spec)
            try:
                with imported(f"{path} cannot be imported"):
                    spec.loader.exec_module(module)
            except BrokenFile:
                del sys.modules[called]
                raise
            return module
    raise VitinitError(
        f"there is no {file} with the content that is named ({digest}); it was looked for in {', '.join(folders)}; "
        f"{FOLDERS}=FOLDER says where it is"
    )
