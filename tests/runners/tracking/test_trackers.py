"""Trackers: each read back by its own reader, after a session that was killed; one that fails; whole runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from tests.faults.harness import assert_same, cells, setting
from vitinit.benchmark.records.store import Store
from vitinit.runners.basics.setting import Event
from vitinit.runners.basics.stop import Stop
from vitinit.runners.one_run.carry_out import carry_out
from vitinit.runners.tracking import registry
from vitinit.runners.tracking.tracker import TrackedRun, Tracker

History = dict[str, dict[int, float]]
"""Values by name and epoch."""


class Notes(Tracker):
    """Writes a line for each value into a file of the run."""

    name: ClassVar[str] = "notes"

    def __init__(self, run: TrackedRun) -> None:
        run.folder.mkdir(parents=True, exist_ok=True)
        self.path = run.folder / f"{run.run_id}.csv"
        held = [line.split(",") for line in self.path.read_text().splitlines()] if self.path.exists() else []
        self.path.write_text("".join(f"{','.join(line)}\n" for line in held if int(line[0]) < run.first))

    def log(self, epoch: int, values: dict[str, float]) -> None:
        with self.path.open("a") as file:
            file.writelines(f"{epoch},{name},{value}\n" for name, value in values.items())

    def close(self, status: str) -> None:
        pass


def read_notes(folder: Path, run_id: str) -> History:
    found: History = {}
    for line in (folder / f"{run_id}.csv").read_text().splitlines():
        epoch, name, value = line.split(",")
        assert int(epoch) not in found.setdefault(name, {}), "written twice"
        found[name][int(epoch)] = float(value)
    return found


@pytest.fixture(autouse=True)
def notes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.REGISTRY.by_name() and registry.REGISTRY.known, "notes", Notes)


def read_tensorboard(folder: Path, run_id: str) -> History:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    reader = EventAccumulator(str(folder / run_id)).Reload()
    names = reader.Tags()["scalars"]
    assert all(len({e.step for e in reader.Scalars(name)}) == len(reader.Scalars(name)) for name in names)
    return {name: {event.step: event.value for event in reader.Scalars(name)} for name in names}


READERS = {"notes": read_notes, "tensorboard": read_tensorboard}


def here(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    library = registry.REGISTRY.get(name).library
    if library:
        pytest.importorskip(library, reason=f"tracker {name}: {library} is not installed")
    monkeypatch.delenv("WANDB_MODE", raising=False)


@pytest.mark.parametrize("name", sorted(registry.REGISTRY.by_name()))
def test_a_session_that_was_killed_goes_on_in_the_same_place_and_one_begun_anew_replaces_it(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here(name, monkeypatch)
    run = TrackedRun("0123456789abcdef", "study", tmp_path, {"recipe.lr": 0.001, "row": "Mimetic"}, first=1)

    def session(first: int, last: int, closed: bool = True) -> None:
        tracker = registry.REGISTRY.get(name)(replace(run, first=first))
        for epoch in range(first, last + 1):
            tracker.log(epoch, {"train/loss": 1 / epoch, "test/top1": 10.0 * epoch})
        if closed:
            tracker.close("done" if last == 4 else "stopped")

    session(1, 3, closed=name == "wandb")  # its process would go on in ours
    session(3, 4)
    if name in READERS:
        found = READERS[name](tmp_path, run.run_id)
        assert found["train/loss"] == pytest.approx({epoch: 1 / epoch for epoch in range(1, 5)})
        assert found["test/top1"] == pytest.approx({epoch: 10.0 * epoch for epoch in range(1, 5)})
    if name in READERS and name != "wandb":  # the server replaces it
        session(1, 2)
        assert READERS[name](tmp_path, run.run_id)["test/top1"] == {1: 10.0, 2: 20.0}


@pytest.mark.parametrize("name", sorted(READERS))
def test_a_run_is_tracked_as_it_is_recorded(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here(name, monkeypatch)
    cell = cells(tmp_path, epochs=3)[0]
    seldom = cell.spec.recipe.model_copy(update={"evaluate_every": 2})
    cell = replace(cell, spec=cell.spec.model_copy(update={"recipe": seldom}))
    tracked = replace(setting(tmp_path / "tracked"), track=(name,))
    events: list[Event] = []
    end: Any = carry_out(cell, tracked, Stop(), events.append)
    assert [event.trouble for event in events if event.trouble] == []
    found = READERS[name](tracked.root / tracked.study / "tracking" / name, cell.run_id)
    assert found["train/loss"] == pytest.approx({row.epoch: row.train_loss for row in end.history})
    assert found["test/top1"] == pytest.approx({row.epoch: row.test_top1 for row in end.history[1:]})
    assert found["lr"] == pytest.approx({row.epoch: row.lr for row in end.history})
    assert found["test/calibration_error"] == pytest.approx(
        {row.epoch: row.metrics["calibration_error"] for row in end.history[1:]}
    )
    entropies = {probe.epoch: probe.attention_entropy for probe in end.probes[1:]}
    for layer in range(len(entropies[3])):
        means = {epoch: np.mean(layers[layer]) for epoch, layers in entropies.items()}
        assert found[f"probe/attention_entropy/{layer}"] == pytest.approx(means), "of the epochs that were evaluated"


class Broken(Tracker):
    """Fails at the second epoch, in one of three ways."""

    name: ClassVar[str] = "broken"
    error: ClassVar[BaseException] = OSError("no space\nleft")
    logged: ClassVar[list[int]] = []

    def __init__(self, run: TrackedRun) -> None:
        pass

    def log(self, epoch: int, values: dict[str, float]) -> None:
        self.logged.append(epoch)
        if epoch == 2:
            raise self.error

    def close(self, status: str) -> None:
        raise AssertionError("it is left out by now")


@pytest.mark.long
@pytest.mark.parametrize("error", [OSError("no space\nleft"), SystemExit(3)], ids=repr)
def test_a_tracker_that_fails_is_said_once_and_changes_nothing(
    error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(registry.REGISTRY.by_name() and registry.REGISTRY.known, "broken", Broken)
    monkeypatch.setattr(Broken, "error", error)
    monkeypatch.setattr(Broken, "logged", [])
    cell, events = cells(tmp_path, epochs=3)[0], list[Event]()
    plain, tracked = setting(tmp_path / "plain"), replace(setting(tmp_path / "tracked"), track=("broken", "notes"))
    carry_out(cell, plain, Stop())
    carry_out(cell, tracked, Stop(), events.append)
    (trouble,) = [event.trouble for event in events if event.trouble]
    assert "broken" in trouble
    assert "\n" not in trouble
    assert Broken.logged == [1, 2]
    assert_same(plain, tracked, cell)
    file = tracked.root / tracked.study / "tracking" / "notes"
    assert set(read_notes(file, cell.run_id)["lr"]) == {1, 2, 3}, "others go on"
    assert Store(tracked.root).read(tracked.study).problems == []
