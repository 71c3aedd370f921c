"""Trackers of one run, told by its events; one that fails is left out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from vitinit.benchmark.grids.schema import Cell
from vitinit.benchmark.metrics.registry import AVERAGED
from vitinit.benchmark.records.export import flatten
from vitinit.benchmark.records.record import FailureRecord, Probe, RunRecord
from vitinit.initializers.errors import cause, plain
from vitinit.initializers.plugins import contained
from vitinit.runners.basics.setting import Event, Setting
from vitinit.runners.tracking import registry
from vitinit.runners.tracking.tracker import TrackedRun, Tracker


class Tracking:
    """Trackers that `setting.track` names; each is opened at the first epoch of a session.

    Args:
        cell: the run.
        setting: where its records go.
        on_event: told once, in an event with `trouble`, that a tracker has failed.
    """

    def __init__(self, cell: Cell, setting: Setting, on_event: Callable[[Event], None]) -> None:
        self.cell, self.setting, self.on_event = cell, setting, on_event
        self.names, self.trackers = setting.track, dict[str, Tracker]()

    def event(self, event: Event) -> None:
        """Write the epoch and the probes that an event holds."""
        if event.epoch is None or not self.names:
            return
        epoch, values = event.epoch.epoch, dict(self._values(event))
        for name in self.names:
            with self._safely(name):
                if name not in self.trackers:
                    self.trackers[name] = self._opened(name, epoch)
                self.trackers[name].log(epoch, values)

    def end(self, outcome: RunRecord | FailureRecord | None = None) -> None:
        """Close all trackers, once; without an `outcome` the run was stopped."""
        trackers, self.trackers = self.trackers, {}
        for name in self.names:
            if name in trackers:
                with self._safely(name):
                    trackers[name].close(outcome.status if outcome else "stopped")

    def _opened(self, name: str, first: int) -> Tracker:
        cell, setting = self.cell, self.setting
        config = flatten({"row": cell.row, **cell.spec.model_dump(mode="json")})
        folder = setting.root / setting.study / "tracking" / name
        return registry.REGISTRY.get(name)(TrackedRun(cell.run_id, setting.study, folder, config, first))

    @contextmanager
    def _safely(self, name: str) -> Iterator[None]:
        try:
            with contained(f"tracker {name}"):
                yield
        except Exception as error:  # libraries and networks raise anything
            self.names = tuple(other for other in self.names if other != name)
            text = f"tracker {name} failed, and the run goes on without it: {plain(cause(error), 300)}"
            self.on_event(Event(self.cell.run_id, trouble=text, tracker=name))

    def _values(self, event: Event) -> Iterator[tuple[str, float]]:
        row, on = event.epoch, self.cell.spec.dataset.evaluate_on
        assert row is not None
        yield from (("lr", row.lr), ("train/loss", row.train_loss), ("seconds", row.seconds))
        if row.images_per_s is not None:
            yield "images_per_s", row.images_per_s
        names = ("loss", row.field, AVERAGED + "loss", AVERAGED + row.metric)
        measured = {name: row.value(name) for name in names} | row.metrics
        yield from ((f"{on}/{name}", value) for name, value in measured.items() if value is not None)
        if event.probe:
            yield from of_layers(event.probe)


def of_layers(probe: Probe) -> Iterator[tuple[str, float]]:
    """Return the quantities of a probe by layer, means over heads."""
    for name, layers in {**dict(probe), **probe.more}.items():
        if isinstance(layers, list):
            for number, each in enumerate(layers):
                heads = [value for value in (each if isinstance(each, list) else [each]) if value is not None]
                if heads:
                    yield f"probe/{name}/{number}", sum(heads) / len(heads)
