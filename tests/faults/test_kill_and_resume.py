"""A run that is stopped or killed again and again, at any moment, ends as if it had been left alone."""

import itertools
import os
import random
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from tests.faults.harness import ALL, MOMENTS, Kill, arm, assert_same, attempt, cells, finish, setting
from tests.processes import NEEDS_PROC
from tests.runners.worlds import Died, together
from vitinit.benchmark.grids import grid
from vitinit.benchmark.records.store import Store
from vitinit.runners.basics.setting import Stop
from vitinit.runners.one_run.carry_out import carry_out
from vitinit.runners.training.distributed import joined

pytestmark = [pytest.mark.long, NEEDS_PROC]

KILLS = 9 if ALL else 2


@pytest.mark.parametrize("number", range(12) if ALL else (0, 5))
def test_killed_at_random_moments_it_ends_with_the_same_bits(tmp_path, number, tally):
    cell = cells(tmp_path)[number]
    left_alone, killed = setting(tmp_path / "left alone"), setting(tmp_path / "killed")
    finish(cell, left_alone)
    dice = random.Random(number)
    struck = dict.fromkeys(MOMENTS, 0)
    for _ in range(20 * KILLS):
        if sum(struck.values()) == KILLS:
            break
        kill = Kill.draw(dice)
        where = setting(killed.root, minutes=dice.choice((0, 0.001, 0.01)))
        exit_code = attempt(cell, where, kill)
        contents = Store(killed.root).read(killed.study)
        assert contents.problems == [], kill
        assert contents.failed == {}, kill
        if exit_code == -9:
            struck[kill.moment] += 1
        else:
            # it was through before the kill could strike: begin again from nothing
            assert exit_code == 0, kill
            assert_same(left_alone, killed, cell)
            for path in (killed.root / killed.study).glob(f"**/{cell.run_id}*.*"):
                path.unlink()
    assert sum(struck.values()) == KILLS, "most kills miss"
    survived = False
    try:
        finish(cell, killed)
        assert_same(left_alone, killed, cell)
        survived = True
    finally:
        for moment, count in struck.items():
            tally(f"SIGKILL, {moment}", tried=count, survived=count * survived)


CHAIN = (("claim", 1), ("training", 3), ("evaluation", 1), ("checkpoint", 1), ("training", 1), ("record", 1))
"""Moments at which a run of ten steps or more, saved after each, is stopped one after the other."""
STOPS = (signal.SIGKILL, signal.SIGTERM, signal.SIGUSR2)
ROWS = {
    "digits": "fp16-mixing rand-augment sgd-step lion-wsd muon-linear ema-constant convit convmixer",
    "timm": "timm",
    "shapes": "masks",
    "folder": "crops",
}
"""Rows of `grids/`, by grid: together they cross what a run can be made of."""
NAMES = [(name, row) for name, rows in ROWS.items() for row in rows.split()]


def cell_in(folder, name, row, photographs):
    """The first run of a row; a folder of images lies beside its grid."""
    copy = folder / f"{name}.yaml"
    copy.write_text((Path(__file__).parent / f"grids/{name}.yaml").read_text())
    (folder / "images").symlink_to(photographs)
    return next(cell for cell in grid.load(str(copy)).cells if cell.row == row)


@pytest.mark.parametrize(("name", "row"), NAMES)
def test_stopped_at_one_moment_after_the_other_it_ends_with_the_same_bits(tmp_path, name, row, photographs):
    cell, number = cell_in(tmp_path, name, row, photographs), NAMES.index((name, row))
    whole, stopped = setting(tmp_path / "whole", keep_maps=True), setting(tmp_path / "stopped", keep_maps=True)
    if row == "rand-augment":
        whole, stopped = (replace(each, execution=replace(each.execution, micro_batch=6)) for each in (whole, stopped))
    finish(cell, whole)
    for (moment, count), stop in zip(CHAIN, itertools.islice(itertools.cycle(STOPS), number, None), strict=False):
        assert attempt(cell, stopped, Kill(moment, count, stop)) == (-stop if stop == signal.SIGKILL else 0), moment
    record = finish(cell, stopped)
    assert_same(whole, stopped, cell)
    assert record.files == Store(whole.root).read("faults").done[cell.run_id].files
    sessions = [session.from_step for session in record.sessions]
    assert sessions == sorted(sessions)
    assert len(sessions) > 2


def in_a_world(cell, where, kill):
    """Carry out a run together, also one that has failed; the last process may be killed. Return True if it is done."""
    failures = Store(where.root).read(where.study).failed
    where = replace(where, retried={run_id: failure.written for run_id, failure in failures.items()})
    if kill and os.environ["RANK"] == "1":
        arm(kill)
    with joined("cpu") as world:
        return carry_out(cell, where, Stop(), world=world).status == "done"


def test_two_processes_of_which_one_is_killed_end_with_the_same_bits(tmp_path, photographs):
    cell = cell_in(tmp_path, "digits", "rand-augment", photographs)
    whole, killed = setting(tmp_path / "whole"), setting(tmp_path / "killed")
    assert together(2, in_a_world, cell, whole, None) == [True, True]
    for moment, count in (("training", 3), ("evaluation", 1)):
        assert {type(end) for end in together(2, in_a_world, cell, killed, Kill(moment, count))} == {Died}
    assert together(2, in_a_world, cell, killed, None) == [True, True]
    assert_same(whole, killed, cell)
