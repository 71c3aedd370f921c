"""A run that is stopped again and again, at one place after another, ends as if it had been left alone.

The oracle: the numbers of the record, and the kept weights and maps, of the same command without a stop.
"""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.processes import PATIENCE, begin
from tests.resume import cells
from tests.resume.strike import PLACES

KILL, TERM, OUT_OF_TIME = signal.SIGKILL, signal.SIGTERM, signal.SIGUSR2
STOPS = (KILL, TERM, OUT_OF_TIME)
CHAIN = (("claim", 1), ("step", 3), ("evaluation", 2), ("checkpoint", 1), ("step", 1), ("record", 1))
"""Places at which a run of ten steps and two evaluations, saved every second step, is stopped one after the other."""

CELLS = [
    "alone/fp16-mixing",
    "alone/rand-augment",
    "alone/sgd-step",
    "alone/lion-wsd",
    "alone/muon-linear",
    "alone/ema-constant",
    "alone/convit",
    "alone/convmixer",
    "alone/timm",
    "alone/masks",
    "alone/crops",
    "micro-batch/rand-augment",
    "two-processes/rand-augment",
]
"""Rows of the goldens' grids; each begins with another stop."""


def command(name: str) -> tuple[list[str], int]:
    """Arguments of the command that carries a cell out, saving every step, and its number of processes."""
    execution, _, row = name.partition("/")
    (how,) = (each for each in cells.EXECUTIONS if each.name == execution and row in each.cells())
    options = "--executor inline --device cpu --data-dir data --checkpoint-minutes 0 --keep-weights --keep-maps"
    options += " --retry-failed"
    if how.grid in ("golden-timm", "golden-shapes"):
        options += " --seeds 0 --set recipe.epochs=2"
    return ["run", f"{how.grid}.yaml", "--only", f"row={row}", *how.options, *options.split()], how.processes


def carry_out(place: Path, name: str, results: str, strike: tuple[str, int, int] = ("never", 0, 0)) -> list[int]:
    """Exit codes of the processes of a cell, the struck one first: the last, or the one that writes files."""
    arguments, processes = command(name)
    struck = 0 if strike[0] in ("claim", "checkpoint", "record") else processes - 1
    started = []
    for rank, world in enumerate(cells.worlds(processes) if processes > 1 else [{}]):
        words = ["-m", "tests.resume.strike", *(strike if rank == struck else ("never", 0, 0))]
        said = place / f"said {results} {rank}"
        said.mkdir(exist_ok=True)
        started.append(begin(*words, *arguments, "--results", results, cwd=place, said=said, **world))
    for process in started:
        process.join(PATIENCE)
    return [started[struck].exitcode, *(each.exitcode for rank, each in enumerate(started) if rank != struck)]


def outcome(place: Path, results: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The only record, and what is compared of it."""
    (path,) = (path for path in (place / results).glob("*/*.json") if len(path.stem) == 16)
    record = json.loads(path.read_text())
    return record, {**cells.numbers(record), "files": cells.files(path)}


@pytest.mark.long
@pytest.mark.parametrize("name", CELLS)
def test_stopped_at_every_place_it_ends_with_the_same_bits(tmp_path: Path, name: str) -> None:
    assert {place for place, _ in CHAIN} == PLACES.keys()
    shutil.copytree(cells.GRIDS, tmp_path, dirs_exist_ok=True)  # beside the images of a relative folder
    cells.draw_images(tmp_path / "images")
    assert set(carry_out(tmp_path, name, "whole")) == {0}
    for number, (place, times) in enumerate(CHAIN, CELLS.index(name)):
        stop = STOPS[number % len(STOPS)]
        codes = carry_out(tmp_path, name, "stopped", (place, times, stop))
        # a process that others wait for ends them if it dies; asked to stop, the first one says that they have
        assert codes[0] == -KILL and 0 not in codes if stop == KILL else 130 in codes, (place, stop, codes)
    assert set(carry_out(tmp_path, name, "stopped")) == {0}
    (_, whole), (record, stopped) = (outcome(tmp_path, results) for results in ("whole", "stopped"))
    assert stopped == whole
    sessions = [session["from_step"] for session in record["sessions"]]
    assert sessions == sorted(sessions)
    assert len(sessions) > 2
