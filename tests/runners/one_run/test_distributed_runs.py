"""Whole runs in two processes on the CPU: resumed by another number, failing, and started by torchrun."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.faults import harness
from tests.runners.worlds import Died, at_call, together
from vitinit.benchmark.datasets import load as datasets
from vitinit.benchmark.grids.schema import Cell
from vitinit.benchmark.records.record import FailureRecord
from vitinit.benchmark.records.store import Store
from vitinit.runners.basics.setting import Setting
from vitinit.runners.basics.stop import Stop
from vitinit.runners.launching.inline import in_turn, shared
from vitinit.runners.training import train
from vitinit.runners.training.distributed import joined


def cell(folder: Path, row: str, **recipe: object) -> Cell:
    """A tiny run on 100 digits: two epochs of seven steps."""
    found = [cell for cell in harness.cells(folder) if cell.row == row and cell.spec.recipe.rand_augment]
    spec = found[0].spec
    return Cell(row, spec.model_copy(update={"recipe": spec.recipe.model_copy(update=recipe)}))


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
