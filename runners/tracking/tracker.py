"""Base class and registry of trackers: they are told what a run measures, epoch by epoch. Imports no libraries."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from statistics import fmean
from typing import Any, ClassVar, Literal

from vitinit.benchmark.grids.schema import Cell
from vitinit.benchmark.metrics.registry import AVERAGED
from vitinit.benchmark.records.record import EpochRow, FailureRecord, Probe, RunRecord
from vitinit.benchmark.settings import flatten
from vitinit.initializers import plugins
from vitinit.initializers.errors import VitinitError, cause, plain
from vitinit.runners.basics.setting import Setting


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


REGISTRY: plugins.Registry[type[Tracker]] = plugins.Registry(
    "tracker", (__package__,), wanted="a Tracker class", accepts=plugins.concrete(Tracker), collect=True
)


def checked(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names of trackers, each once; those of files with the digests of these.

    Raises:
        VitinitError: there is no such tracker, or its library is not installed.
    """
    pinned = tuple(dict.fromkeys(plugins.pinned(name, Path.cwd()) for name in names))
    for name in pinned:
        library = REGISTRY.get(name).library
        if library and find_spec(library) is None:
            raise VitinitError(f"--track {name} needs the library {library}: pip install {library}")
    return pinned


@dataclass
class Tracking:
    """Trackers of a run."""

    cell: Cell
    setting: Setting
    report: Callable[[str], None]
    """Told, in one line, that a tracker has failed."""
    trackers: dict[str, Tracker | None]
    """By name; each is opened at the first epoch of a session."""

    def epoch(self, row: EpochRow, probe: Probe | None) -> None:
        """Write an epoch, and the probe after it."""
        spec, setting = self.cell.spec, self.setting
        for name, tracker in list(self.trackers.items()):
            with self._safely(name):
                if tracker is None:
                    config = flatten({"row": self.cell.row, **spec.model_dump(mode="json")})
                    tracker_class = REGISTRY.get(name)
                    folder = setting.study_folder / "tracking" / tracker_class.name
                    run = TrackedRun(spec.run_id, setting.study, folder, config, row.epoch)
                    tracker = self.trackers[name] = tracker_class(run)
                tracker.log(row.epoch, values(row, probe, spec.dataset.evaluate_on))

    def end(self, outcome: RunRecord | FailureRecord | None = None) -> None:
        """Close all trackers, once; without an `outcome` the run was stopped."""
        for name, tracker in list(self.trackers.items()):
            with self._safely(name):
                if tracker:
                    tracker.close(outcome.status if outcome else "stopped")
        self.trackers.clear()

    @contextmanager
    def _safely(self, name: str) -> Iterator[None]:
        try:
            yield
        except (Exception, SystemExit) as error:  # libraries and networks raise anything
            del self.trackers[name]
            self.report(f"tracker {name} failed, and the run goes on without it: {plain(cause(error), 300)}")


def values(row: EpochRow, probe: Probe | None, split: str) -> dict[str, float]:
    """Return what an epoch measured, metrics as `<split>/<metric>`; of probes the means over heads, by layer."""
    scalars = {"lr": row.lr, "train/loss": row.train_loss, "seconds": row.seconds, "images_per_s": row.images_per_s}
    for name in ("loss", row.field, AVERAGED + "loss", AVERAGED + row.metric, *row.metrics):
        scalars[f"{split}/{name}"] = row.value(name)
    for name, layers in {**dict(probe), **probe.more}.items() if probe else ():
        for number, layer in enumerate(layers if isinstance(layers, list) else ()):
            heads = [value for value in (layer if isinstance(layer, list) else [layer]) if value is not None]
            scalars[f"probe/{name}/{number}"] = fmean(heads) if heads else None
    return {name: value for name, value in scalars.items() if value is not None}
