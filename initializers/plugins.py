"""Finding what there is one file of each: in a folder of ours, and by entry point in installed packages.

Imports no torch.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import pkgutil
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from vitinit.initializers.errors import BrokenFile, ExitRequested, VitinitError, cause
from vitinit.initializers.foreign import contained

INITIALIZERS = "vitinit.initializers"
"""The entry point group in which packages name their initialisers."""
FOLDERS = "VITINIT_METHODS"
"""Environment variable: folders with files of one's own. `vitinit rank` sets it for the processes that it starts."""


def look_into_own_folders() -> None:
    """Let Python look into `FOLDERS`, last: a file there called like a module of ours, or of a library, is not it."""
    folders = os.environ.get(FOLDERS, "").split(os.pathsep)
    sys.path.extend(folder for folder in folders if folder and folder not in sys.path)


def modules(package: str) -> Iterator[ModuleType]:
    """Every file of a package, named as package.folder, imported, in the order of their names.

    Raises:
        BrokenFile: one cannot be imported.
    """
    for found in pkgutil.iter_modules(importlib.import_module(package).__path__, f"{package}."):
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


def installed(group: str) -> bool:
    """Return True where an installed package names something in an entry point group."""
    return bool(importlib.metadata.entry_points(group=group))


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
