"""Base class and registry of trackers: they are told what a run measures, epoch by epoch. Imports no libraries."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Literal

from vitinit.initializers.errors import VitinitError
from vitinit.initializers.plugins import Registry, concrete


@dataclass(frozen=True)
class TrackedRun:
    """One session of a run, as a tracker sees it."""

    run_id: str
    """The name of the run."""
    study: str
    """The group of the run."""
    folder: Path
    """Folder of this tracker, one for all runs of the study: `<results>/<study>/tracking/<tracker>`."""
    config: dict[str, Any]
    """Row and spec, flat: `recipe.lr`."""
    first: int
    """The first epoch of this session. A tracker may hold it and later ones already, from a session that was killed
    after its last checkpoint: they are replaced, or are the same numbers. At 1 the run begins anew."""


class Tracker(ABC):
    """A tracker of one session of a run. Subclass it in a file of this folder; import its library inside its methods.

    What it raises is told in one line, and the run goes on without it.
    """

    name: ClassVar[str]
    """On the command line."""
    library: ClassVar[str] = ""
    """The package that it needs, which `pip install` knows by the same name."""

    @abstractmethod
    def __init__(self, run: TrackedRun) -> None:
        """Open the run, or go on with it."""

    @abstractmethod
    def log(self, epoch: int, values: dict[str, float]) -> None:
        """Write what an epoch measured: `train/loss`, `test/top1`, `lr`, `probe/nonlocality/0` (of layer 0)."""

    @abstractmethod
    def close(self, status: Literal["done", "failed", "stopped"]) -> None:
        """End the session; a stopped run goes on in another one."""


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
