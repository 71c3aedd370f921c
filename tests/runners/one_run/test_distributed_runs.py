"""Whole runs in two processes on the CPU: resumed by another number, failing, and started by torchrun."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.faults import harness
from tests.runners.worlds import Died, at_call, together
from vitinit.benchmark.datasets import load as datasets
from vitinit.benchmark.grids.schema import Cell
from vitinit.benchmark.records.record import FailureRecord, RunRecord
from vitinit.benchmark.records.store import Store
from vitinit.runners.basics.setting import End, Setting, Unfinished
from vitinit.runners.basics.stop import Stop, on_signals
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


def begun_and_ended_by_two(cell: Cell, from_one: Setting, to_one: Setting) -> list[list[End]]:
    """A run that one process has begun, to its end; and one that is stopped, to be resumed by one."""
    with joined("cpu") as world:
        return [session([cell], from_one, world), session([cell], to_one, world, stop_at=4)]


@pytest.mark.long
def test_another_number_of_processes_goes_on_with_a_run_and_the_record_says_so(tmp_path):
    mimetic = cell(tmp_path, "mimetic", batch_size=15, clip_grad=1.0)
    alone, from_one, to_one = (harness.setting(tmp_path / name) for name in ("alone", "from_one", "to_one"))
    (expected,) = session([mimetic], alone, ALONE)
    (stopped,) = session([mimetic], from_one, ALONE, stop_at=5)
    assert isinstance(stopped, Unfinished)
    (first, second), _ = together(2, begun_and_ended_by_two, mimetic, from_one, to_one)
    assert [end.status for end in (*first, *second)] == ["done", "stopped"]
    (record,) = session([mimetic], to_one, ALONE)
    for found, step, processes in ((record, 4, [2, 1]), (first[0], 5, [1, 2])):
        assert isinstance(found, RunRecord)
        (change,) = found.environment["changed_while_running"]
        assert change["from_step"] == step
        assert change["changed"]["execution.processes"] == processes
        assert found.execution["processes"] == processes[1]
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
