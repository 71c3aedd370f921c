"""Trackers: all that their libraries are called with; one that fails; whole runs."""

import sys
from dataclasses import replace
from typing import Any, ClassVar
from unittest.mock import Mock, call

import numpy as np
import pytest

from tests.faults.harness import assert_same, cells, setting
from vitinit.runners.basics.setting import Stop
from vitinit.runners.one_run.carry_out import carry_out
from vitinit.runners.tracking.tracker import REGISTRY, TrackedRun, Tracker


class Notes(Tracker):
    """Keeps in memory what it is told."""

    name = "notes"
    said: ClassVar[list[Any]] = []

    def __init__(self, run):
        self.said.append(run)

    def log(self, epoch, values):
        self.said.append((epoch, values))

    def close(self, status):
        self.said.append(status)


class Broken(Notes):
    """Ends the process at the second epoch."""

    name = "broken"
    said: ClassVar[list[Any]] = []

    def log(self, epoch, values):
        super().log(epoch, values)
        if epoch == 2:
            raise SystemExit("no space\nleft")


@pytest.fixture(autouse=True)
def installed(monkeypatch):
    assert set(REGISTRY.by_name()) == {"tensorboard", "wandb"}
    for cls in (Notes, Broken):
        monkeypatch.setitem(REGISTRY.known, cls.name, cls)
        monkeypatch.setattr(cls, "said", [])


@pytest.mark.parametrize(("first", "project"), [(1, ""), (3, "mine")])
def test_tensorboard_and_wandb_are_told_the_run_its_numbers_and_its_end(first, project, tmp_path, monkeypatch):
    """A later session goes on in the same place, and replaces what a killed one had written after its checkpoint."""
    libraries = Mock()
    for name in ("wandb", "torch.utils.tensorboard"):
        monkeypatch.setitem(sys.modules, name, libraries)
    for name in ("WANDB_PROJECT", "WANDB_MODE"):
        monkeypatch.setenv(name, project)
    run = TrackedRun("0123456789abcdef", "study", tmp_path / "wandb", {"recipe.lr": 0.001}, first)
    before = run.folder / run.run_id / "events"
    before.parent.mkdir(parents=True)
    before.touch()
    for name, status in (("tensorboard", "done"), ("wandb", "failed")):
        tracker = REGISTRY.get(name)(run)
        tracker.log(first, {"train/loss": 0.5, "lr": 0.1})
        tracker.close(status)
    begins = first == 1
    assert before.exists() != begins
    writer, session = call.SummaryWriter(), call.init()
    assert libraries.mock_calls == [
        call.SummaryWriter(str(before.parent), purge_step=None if begins else 3),
        *([writer.add_text("config", '```\n{\n "recipe.lr": 0.001\n}\n```', 0)] if begins else []),
        writer.add_scalar("train/loss", 0.5, first),
        writer.add_scalar("lr", 0.1, first),
        writer.flush(),
        writer.close(),
        call.Settings(silent=True, console="off", x_disable_meta=True, host=""),
        call.init(
            project=project or "vitinit",
            id=run.run_id,
            name=run.run_id,
            group="study",
            config=run.config,
            dir=str(run.folder),
            mode=None if project else "offline",
            resume=None if begins else "allow",
            settings=libraries.Settings.return_value,
        ),
        session.define_metric("*", step_metric="epoch"),
        session.log({"epoch": first, "train/loss": 0.5, "lr": 0.1}, step=first),
        session.finish(exit_code=1),
    ]


@pytest.mark.long
def test_a_run_is_tracked_as_it_is_recorded_and_a_tracker_that_fails_changes_nothing(tmp_path):
    cell, events = cells(tmp_path, epochs=3)[0], list[Any]()
    seldom = cell.spec.recipe.model_copy(update={"evaluate_every": 2})
    cell = replace(cell, spec=cell.spec.model_copy(update={"recipe": seldom}))
    plain, tracked = setting(tmp_path / "plain"), replace(setting(tmp_path / "tracked"), track=("broken", "notes"))
    carry_out(cell, plain, Stop())
    end = carry_out(cell, tracked, Stop(), events.append)
    (trouble,) = [event for event in events if isinstance(event, str)]
    said = "tracker broken failed, and the run goes on without it: "
    assert trouble.startswith(said)
    assert "\n" not in trouble
    assert end.notes == [trouble]
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
