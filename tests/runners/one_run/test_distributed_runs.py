"""Whole runs in two processes on the CPU: stopped, killed, resumed, failing, and started by torchrun."""

from __future__ import annotations

import io
import os
import signal
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import yaml

from tests.faults import harness
from tests.runners.worlds import Died, at_call, together
from vitinit.benchmark.datasets import load as datasets
from vitinit.benchmark.grids.schema import Cell
from vitinit.benchmark.records.record import FailureRecord, RunRecord
from vitinit.benchmark.records.store import Store
from vitinit.runners.basics.setting import End, Setting, Unfinished
from vitinit.runners.basics.stop import Stop, on_signals
from vitinit.runners.cli import main as cli
from vitinit.runners.cli.options import console
from vitinit.runners.launching.inline import in_turn, shared
from vitinit.runners.training import train
from vitinit.runners.training.distributed import ALONE, World, joined


def cell(folder: Path, row: str, **recipe: object) -> Cell:
    """A tiny run on 100 digits: two epochs of seven steps."""
    found = [cell for cell in harness.cells(folder) if cell.row == row and cell.spec.recipe.rand_augment]
    spec = found[0].spec
    return Cell(row, spec.model_copy(update={"recipe": spec.recipe.model_copy(update=recipe)}))


def session(cells: list[Cell], where: Setting, world: World, stop_at: int | None = None) -> list[End]:
    """Carry out runs; a SIGTERM reaches the last process only, at one of its optimiser steps."""
    stop, original = Stop(), train.optimize
    if stop_at and world.rank == world.size - 1:
        train.optimize = at_call(stop_at, original, lambda: os.kill(os.getpid(), signal.SIGTERM))
    where = replace(where, execution=shared(where.execution, world))
    try:
        with on_signals(stop, impatient=False):
            return list(in_turn(cells, where, stop, world=world))
    finally:
        train.optimize = original


def stop_and_go_on(cells: list[Cell], whole: Setting, resumed: Setting, from_one: Setting, to_one: Setting) -> list:
    """Uninterrupted; stopped and resumed; begun by one process; and stopped to be resumed by one."""
    with joined("cpu") as world:
        ends = [session(cells, whole, world)]
        for number, cell in enumerate(cells):
            ends.append(session([cell], resumed, world, stop_at=3 + 3 * number))
        ends.append(session(cells, resumed, world))
        ends.append(session(cells[:1], from_one, world))
        ends.append(session(cells[:1], to_one, world, stop_at=4))
        return ends


@pytest.mark.long
def test_stopped_and_resumed(tmp_path):
    """A signal to one process stops both at one step, and they end with the bits of an uninterrupted run."""
    mimetic = cell(tmp_path, "mimetic", batch_size=15, clip_grad=1.0)
    cells = [mimetic, cell(tmp_path, "dropout", precision="fp16")]
    places = [harness.setting(tmp_path / name) for name in ("whole", "resumed", "from_one", "to_one")]
    whole, resumed, from_one, to_one = places
    (stopped,) = session([mimetic], from_one, ALONE, stop_at=5)
    assert isinstance(stopped, Unfinished)
    ranks = together(2, stop_and_go_on, cells, *places)
    for first, second in zip(*ranks, strict=True):
        assert [end.status for end in first] == [end.status for end in second]
    statuses = [[end.status for end in ends] for ends in ranks[0]]
    assert statuses == [["done"] * 2, ["stopped"], ["stopped"], ["done"] * 2, ["done"], ["stopped"]]
    for number, each in enumerate(cells):
        harness.assert_same(whole, resumed, each)
        sessions = Store(resumed.root).read("faults").done[each.run_id].sessions
        assert [session.from_step for session in sessions] == [0, 3 + 3 * number]

    (record,) = session([mimetic], to_one, ALONE)
    expected = Store(whole.root).read("faults").done[mimetic.run_id]
    for found, step, processes in ((record, 4, [2, 1]), (ranks[0][4][0], 5, [1, 2])):
        assert isinstance(found, RunRecord)
        (change,) = found.environment["changed_while_running"]
        assert change["from_step"] == step
        assert change["changed"]["execution.processes"] == processes
        assert (found.execution["processes"], expected.execution["processes"]) == (processes[1], 2)
        for row, other in zip(found.history, expected.history, strict=True):
            assert row.train_loss == pytest.approx(other.train_loss, rel=1e-4)
            assert row.test_loss == pytest.approx(other.test_loss, rel=1e-4)


def fail(cells: list[Cell], where: Setting) -> None:
    """Data that rank 1 cannot read; a loss that is no number; batches too small to share; then rank 1 fails alone."""
    if os.environ["RANK"] == "1":
        datasets.load = at_call(1, datasets.load, lambda: (_ for _ in ()).throw(OSError("no such file")))
    with joined("cpu") as world:
        where = replace(where, execution=shared(where.execution, world))
        for end in in_turn(cells, where, Stop(), world=world):
            assert isinstance(end, FailureRecord)
            if end.run_id == cells[2].run_id and world.rank == 1:

                def out_of_memory() -> None:
                    raise torch.OutOfMemoryError("no memory left")

                train.optimize = at_call(3, train.optimize, out_of_memory)


@pytest.mark.long
def test_failures(tmp_path):
    """What all know of is recorded, and the next run begins; else the process that failed records it and both end."""
    recipes = [{}, {"lr": 1e20, "eps": 1e-30}, {"batch_size": 1}, {"weight_decay": 0.01}]
    cells = [cell(tmp_path, "mimetic", **recipe) for recipe in recipes]
    where = harness.setting(tmp_path / "failing")
    ranks = together(2, fail, cells, where)
    assert [isinstance(rank, Died) and rank.exitcode for rank in ranks] == [1, 1]
    failed = Store(where.root).read("faults").failed
    found = [(failed[each.run_id].error, failed[each.run_id].message) for each in cells]
    assert found[0] == ("OSError", "rank 1 of 2: no such file")
    assert found[1][0] == "Diverged"
    assert found[2] == ("VitinitError", "2 processes cannot share batches of 1 images: 1 to 1 can")
    assert found[3] == ("OutOfMemoryError", "rank 1 of 2: no memory left")
    assert "out_of_memory" in failed[cells[3].run_id].traceback
    assert failed[cells[3].run_id].execution["processes"] == 2


def killed(rank: int, each: Cell, where: Setting) -> None:
    """SIGKILL to one process at the fifth step."""
    if os.environ["RANK"] == str(rank):
        train.optimize = at_call(5, train.optimize, lambda: os.kill(os.getpid(), signal.SIGKILL))
    with joined("cpu") as world:
        session([each], where, world)


def whole_and_taken_up(each: Cell, whole: Setting, resumed: Setting) -> None:
    with joined("cpu") as world:
        session([each], whole, world)
        session([each], resumed, world)


@pytest.mark.long
def test_a_process_that_is_killed_ends_the_other(tmp_path):
    """Rank 0, where it is left, records it; taken up from the last checkpoint it is the run that it would have been."""
    each = cell(tmp_path, "convit", precision="bf16")
    whole, resumed, first = (harness.setting(tmp_path / name) for name in ("whole", "resumed", "first"))
    for rank, where, codes in ((0, first, [-signal.SIGKILL, 1]), (1, resumed, [1, -signal.SIGKILL])):
        ranks = together(2, killed, rank, each, where)
        assert [death.exitcode for death in ranks if isinstance(death, Died)] == codes
    assert Store(first.root).read("faults").failed == {}
    failed = Store(resumed.root).read("faults").failed
    assert [failure.message[:13] for failure in failed.values()] == ["rank 0 of 2: "]
    retried = {run_id: failure.written for run_id, failure in failed.items()}
    together(2, whole_and_taken_up, each, whole, replace(resumed, retried=retried))
    harness.assert_same(whole, resumed, each)
    sessions = Store(resumed.root).read("faults").done[each.run_id].sessions
    assert [session.from_step for session in sessions] == [0, 4]


def vitinit(cwd: Path, *arguments: str) -> tuple[int, str, str]:
    """`vitinit ARGUMENTS` in a process that torchrun has started; its exit code and what it printed."""
    os.chdir(cwd)
    console.width, sys.argv = 200, ["vitinit", *arguments]
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            cli.main()
        except SystemExit as stop:
            return stop.code or 0, out.getvalue(), err.getvalue()


def test_the_command_line_refuses_half_an_environment(here, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    for executor in ("inline", "local"):
        assert here("run", "smoke", "--device", "cpu", "--executor", executor) == (2, "")
    assert here("run", "smoke", "--device", "cpu") == (2, "")


@pytest.mark.long
def test_the_command_line_under_torchrun(tmp_path):
    """Its variables, that is, which are what we read of it."""
    block = {
        "datasets": [{"name": "digits", "train_size": 100}],
        "model": {"preset": "vit_micro", "image_size": 8, "patch_size": 2, "width": 16, "depth": 1},
        "recipe": {"name": "small", "epochs": 1, "batch_size": 15},
        "seeds": [0],
    }
    rows = {"Mimetic": {"base": "kaiming_uniform", "method": "mimetic"}, "Base": {"base": "trunc_normal"}}
    (tmp_path / "together.yaml").write_text(yaml.safe_dump({"title": "Together", "rows": rows, "blocks": [block]}))
    arguments = ["run", "together.yaml", "--device", "cpu", "--results", "here", "--micro-batch", "4"]
    ended = together(2, vitinit, tmp_path, *arguments, "--executor", "inline")
    assert [code for code, *_ in ended] == [0, 0], ended
    assert [out.count("2 runs finished, 0 failed") for _, out, _ in ended] == [1, 0]
    assert [err for *_, err in ended] == ["", ""]
    records = Store(tmp_path / "here").read("together").done.values()
    assert [record.execution["processes"] for record in records] == [2, 2]
    assert {record.execution["micro_batch"] for record in records} == {4}
    assert {record.execution["nodes"] for record in records} == {1}
