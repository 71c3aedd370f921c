"""Trackers of one run, told by its events; one that fails is left out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from vitinit.benchmark.grids.schema import Cell
from vitinit.benchmark.metrics.registry import AVERAGED
from vitinit.benchmark.records.export import flatten
from vitinit.benchmark.records.record import EpochRow, FailureRecord, Probe, RunRecord
from vitinit.initializers.errors import cause, plain
from vitinit.runners.basics.setting import Setting
from vitinit.runners.tracking.tracker import REGISTRY, TrackedRun, Tracker


class Tracking:
    """Trackers that `setting.track` names; each is opened at the first epoch of a session.

    Args:
        cell: the run.
        setting: where its records go.
        report: told, in one line, that a tracker has failed.
    """

    def __init__(self, cell: Cell, setting: Setting, report: Callable[[str], None]) -> None:
        self.cell, self.setting, self.report = cell, setting, report
        self.trackers: dict[str, Tracker | None] = dict.fromkeys(setting.track)

    def epoch(self, row: EpochRow, probe: Probe | None) -> None:
        """Write an epoch, and the probe after it."""
        spec = self.cell.spec
        for name, tracker in list(self.trackers.items()):
            with self._safely(name):
                if tracker is None:
                    config = flatten({"row": self.cell.row, **spec.model_dump(mode="json")})
                    folder = self.setting.root / self.setting.study / "tracking" / name
                    run = TrackedRun(spec.run_id, self.setting.study, folder, config, row.epoch)
                    tracker = self.trackers[name] = REGISTRY.get(name)(run)
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
    found = {"lr": row.lr, "train/loss": row.train_loss, "seconds": row.seconds, "images_per_s": row.images_per_s}
    for name in ("loss", row.field, AVERAGED + "loss", AVERAGED + row.metric, *row.metrics):
        found[f"{split}/{name}"] = row.value(name)
    for name, layers in {**dict(probe), **probe.more}.items() if probe else ():
        for number, each in enumerate(layers if isinstance(layers, list) else ()):
            heads = [value for value in (each if isinstance(each, list) else [each]) if value is not None]
            found[f"probe/{name}/{number}"] = sum(heads) / len(heads) if heads else None
    return {name: value for name, value in found.items() if value is not None}
