"""Trackers: each read back by its own reader, after a session that was killed; one that fails; whole runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from tests.faults.harness import assert_same, cells, setting
from vitinit.runners.basics.setting import Event
from vitinit.runners.basics.stop import Stop
from vitinit.runners.one_run.carry_out import carry_out
from vitinit.runners.tracking import registry
from vitinit.runners.tracking.tracker import TrackedRun, Tracker


class Notes(Tracker):
    """Keeps in memory what it is told."""

    name: ClassVar[str] = "notes"
    said: ClassVar[list[Any]] = []

    def __init__(self, run: TrackedRun) -> None:
        self.said.append(run)

    def log(self, epoch: int, values: dict[str, float]) -> None:
        self.said.append((epoch, values))

    def close(self, status: str) -> None:
        self.said.append(status)


class Broken(Notes):
    """Fails at the second epoch, in one of two ways."""

    name: ClassVar[str] = "broken"
    said: ClassVar[list[Any]] = []
    error: ClassVar[BaseException]

    def log(self, epoch: int, values: dict[str, float]) -> None:
        super().log(epoch, values)
        if epoch == 2:
            raise self.error


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(registry.REGISTRY.by_name()) == {"tensorboard", "wandb"}
    for cls in (Notes, Broken):
        monkeypatch.setitem(registry.REGISTRY.known, cls.name, cls)
        monkeypatch.setattr(cls, "said", [])
    monkeypatch.delenv("WANDB_MODE", raising=False)


@pytest.mark.parametrize("name", ["tensorboard", "wandb"])
def test_a_session_that_was_killed_goes_on_in_the_same_place(name: str, tmp_path: Path) -> None:
    pytest.importorskip(name, reason=f"{name} is not installed")
    run = TrackedRun("0123456789abcdef", "study", tmp_path, {"recipe.lr": 0.001, "row": "Mimetic"}, first=1)
    for first, last, closed in ((1, 3, name == "wandb"), (3, 4, True)):  # wandb's process would go on in ours
        tracker = registry.REGISTRY.get(name)(replace(run, first=first))
        for epoch in range(first, last + 1):
            tracker.log(epoch, {"train/loss": 1 / epoch, "test/top1": 10.0 * epoch})
        if closed:
            tracker.close("done" if last == 4 else "stopped")
    if name == "tensorboard":
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        reader = EventAccumulator(str(tmp_path / run.run_id)).Reload()
        found = [(event.step, event.value) for event in reader.Scalars("train/loss")]
        assert found == [(epoch, pytest.approx(1 / epoch)) for epoch in range(1, 5)]
    assert any(tmp_path.iterdir())


@pytest.mark.long
@pytest.mark.parametrize("error", [OSError("no space\nleft"), SystemExit(3)], ids=repr)
def test_a_run_is_tracked_as_it_is_recorded_and_a_tracker_that_fails_changes_nothing(
    error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Broken, "error", error, raising=False)
    cell, events = cells(tmp_path, epochs=3)[0], list[Event]()
    seldom = cell.spec.recipe.model_copy(update={"evaluate_every": 2})
    cell = replace(cell, spec=cell.spec.model_copy(update={"recipe": seldom}))
    plain, tracked = setting(tmp_path / "plain"), replace(setting(tmp_path / "tracked"), track=("broken", "notes"))
    carry_out(cell, plain, Stop())
    end: Any = carry_out(cell, tracked, Stop(), events.append)
    ((trouble, failed),) = [(event.trouble, event.tracker) for event in events if event.trouble]
    assert trouble.startswith("tracker broken failed, and the run goes on without it: ")
    assert ("\n" in trouble, failed) == (False, "broken")
    assert [said[0] for said in Broken.said[1:]] == [1, 2], "and is not closed"
    assert_same(plain, tracked, cell)
    opened, *epochs, closed = Notes.said
    assert (opened.run_id, opened.first, opened.config["recipe.epochs"]) == (cell.run_id, 1, 3)
    assert (opened.folder, closed) == (tracked.root / tracked.study / "tracking/notes", "done")
    for row, (epoch, values) in zip(end.history, epochs, strict=True):
        expected = {"lr": row.lr, "train/loss": row.train_loss, "seconds": row.seconds}
        expected |= {"images_per_s": row.images_per_s}
        if row.test_top1 is not None:
            expected |= {"test/loss": row.test_loss, "test/top1": row.test_top1}
            expected |= {f"test/{name}": value for name, value in row.metrics.items()}
        assert {name: value for name, value in values.items() if "probe/" not in name} == expected
        (probe,) = [probe for probe in end.probes if probe.epoch == epoch] or [None]
        assert (probe is None) == (row.test_top1 is None), "of the epochs that were evaluated"
        if probe:
            assert values["probe/attention_entropy/0"] == pytest.approx(np.mean(probe.attention_entropy[0]))
            assert values["probe/effective_receptive_field/0"] == probe.effective_receptive_field[0]
