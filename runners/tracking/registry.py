"""Registry of trackers: every `Tracker` of a file in this folder. Imports none of their libraries."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec

from vitinit.initializers.errors import VitinitError
from vitinit.initializers.plugins import Registry, concrete
from vitinit.runners.tracking.tracker import Tracker

REGISTRY: Registry[type[Tracker]] = Registry("tracker", (__package__,), accepts=concrete(Tracker), collect=True)


def checked(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names of trackers, each once.

    Raises:
        VitinitError: there is no such tracker, or its library is not installed.
    """
    found = {REGISTRY.get(name).name: REGISTRY.get(name).library for name in names}
    for name, library in found.items():
        if library and find_spec(library) is None:
            raise VitinitError(f"--track {name} needs the library {library}: pip install {library}")
    return tuple(found)
