"""A run that is killed again and again, at any moment, ends as if it had been left alone."""

from __future__ import annotations

import random

import pytest

from tests.faults.harness import ALL, MOMENTS, Kill, assert_same, attempt, cells, finish, setting
from tests.processes import NEEDS_PROC
from vitinit.benchmark.records.store import Store

pytestmark = [pytest.mark.long, NEEDS_PROC]

KILLS = 9 if ALL else 2


LEFT = {
    "claim": (),
    "training": ("claim", "checkpoint"),
    "checkpoint": ("claim",),
    "evaluation": ("claim", "checkpoint"),
    "record": ("claim", "checkpoint", "weights"),
    "tidying": ("claim", "checkpoint", "weights", "record"),
}
"""Files of a run that was killed at the first such moment."""


@pytest.mark.parametrize("moment", sorted(MOMENTS.keys() - {"any time"}))
def test_a_kill_strikes_at_its_moment(tmp_path, moment):
    (cell, *_) = cells(tmp_path)
    first = setting(tmp_path / "first")
    assert attempt(cell, first, Kill(moment, 1)) == -9
    patterns = {
        "claim": "claim-*.json",
        "checkpoint": "step-*.ckpt",
        "weights": "*.pt",
        "record": f"{cell.run_id}.json",
    }
    assert tuple(what for what, pattern in patterns.items() if list(first.root.rglob(pattern))) == LEFT[moment]
    if ALL:
        last = setting(tmp_path / "last")
        assert attempt(cell, last, Kill(moment, MOMENTS[moment])) == -9


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
