"""Tiny runs, in processes of their own or stopped, and the comparison with a run that was left alone."""

from __future__ import annotations

import os
import random
import re
import signal
import stat
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
import yaml

from tests.processes import FORKS, PATIENCE
from vitinit.benchmark.files.atomic import write_atomically
from vitinit.benchmark.grids import grid
from vitinit.benchmark.records.store import Store
from vitinit.runners.basics.setting import Execution, Setting, Stop, on_signals
from vitinit.runners.one_run.carry_out import carry_out
from vitinit.runners.one_run.claims import Progress
from vitinit.runners.training import train

ALL = os.environ.get("FAULTS") == "all"
"""`make test-faults` sets FAULTS=all; `make test` runs the quick share."""
thorough = pytest.mark.skipif(not ALL, reason="takes long: make test-faults")

RUNS = yaml.safe_load(Path(__file__).with_name("rows.yaml").read_bytes())
ROWS = RUNS["rows"]

MOMENTS = yaml.safe_load(
    "{any time: 150, training: 14, evaluation: 2, checkpoint: 12, record: 4, claim: 5, tidying: 5}"
)
"""When a kill strikes, and up to which count it is drawn: hundredths of a second, steps, batches, file operations."""

FILES = {
    "checkpoint": r"step-\d+\.ckpt",
    "record": r"[0-9a-f]{16}\.json",
    "claim": r"unfinished/\w+/\.(claim|progress)",
    "tidying": r"unfinished/\w+$",
}
"""Patterns of the paths that are written, synced, renamed or removed then."""
CHANGES = ("os.link", "os.rename", "os.remove", "os.rmdir", "shutil.rmtree")


def cells(folder, epochs=2, rows=ROWS):
    """Every row with every recipe: tiny models on 100 digits, seven steps an epoch."""
    recipe = {"name": "small", "epochs": epochs, "batch_size": 14}
    blocks = [RUNS["block"] | {"recipe": recipe | other} for other in RUNS["recipes"]]
    path = folder / "faults.yaml"
    # racing launchers write it, all at once
    write_atomically(path, yaml.safe_dump({"title": "faults", "rows": rows, "blocks": blocks}).encode())
    return grid.load(str(path)).cells


def setting(root, minutes=0.0, **fields):
    """Everything of a test in one folder; weights are kept to be compared."""
    values = {
        "root": root,
        "study": "faults",
        "data_dir": root,
        "execution": Execution(device="cpu", threads=1, executor="inline"),
        "code": {},
        "checkpoint_minutes": minutes,
        "keep_weights": True,
        **fields,
    }
    return Setting(**values)


@dataclass(frozen=True)
class Kill:
    """SIGKILL, or another signal, at the n-th of something."""

    moment: str
    count: int
    signal: int = signal.SIGKILL

    @staticmethod
    def draw(dice):
        moment = dice.choice(list(MOMENTS))
        return Kill(moment, dice.randint(1, MOMENTS[moment]))


def attempt(cell, where, kill=None, *on_event):
    """Carry out a run in a process of its own; its exit code, -9 where the kill struck."""
    process = FORKS.Process(target=_attempt, args=(cell, where, kill, *on_event))
    process.start()
    if kill and kill.moment == "any time":
        process.join(kill.count / 100)
        process.kill()
    process.join(PATIENCE)
    assert process.exitcode is not None, "it hangs"
    return process.exitcode


def _attempt(cell, where, kill, *on_event):
    if kill:
        arm(kill)
    with on_signals(stop := Stop()):
        carry_out(cell, where, stop, *on_event)


def arm(kill):
    """Make this process send itself a signal; what a killed one was writing is half written."""
    left = [kill.count]

    def strike():
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), kill.signal)
            time.sleep(60 if kill.signal == signal.SIGKILL else 0)

    if kill.moment == "training":
        update = train.update
        train.update = lambda *arguments: (update(*arguments), strike())[0]
    elif kill.moment == "evaluation":
        autocast = train.autocast
        train.autocast = lambda *arguments: (
            strike() if torch.is_inference_mode_enabled() else 0,
            autocast(*arguments),
        )[1]
    elif kill.moment in FILES:
        pattern, fsync = re.compile(FILES[kill.moment]), os.fsync

        def half_written(descriptor):
            found = os.fstat(descriptor)
            if stat.S_ISREG(found.st_mode) and pattern.search(_opened(descriptor)):
                if left[0] == 1 and found.st_size and kill.signal == signal.SIGKILL:
                    os.truncate(descriptor, random.Random(found.st_size).randrange(found.st_size))
                strike()
            fsync(descriptor)

        os.fsync = half_written

        def watch(event, arguments):
            changes = event in CHANGES or (event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR))
            in_folder = event == "os.remove" and arguments[1] != -1  # rmtree names what is in its folder so
            if changes and pattern.search(_opened(arguments[1]) if in_folder else str(arguments[0])):
                strike()

        sys.addaudithook(watch)


def _opened(descriptor):
    return str(Path(f"/proc/self/fd/{descriptor}").readlink())


def stopped_after(epoch, cell, where):
    """Carry out a run in this process until so many epochs are done."""
    stop = Stop()

    def on_event(event):
        if isinstance(event, Progress) and event.epoch == epoch:
            stop.request("a test")

    assert carry_out(cell, where, stop, on_event).status == "stopped"


def cell_of(name, folder, epochs=2):
    """The first run of a row."""
    return next(cell for cell in cells(folder, epochs) if cell.row == name)


def kill_after_an_epoch(event):
    """End the process of a run, as nothing can handle."""
    if isinstance(event, Progress):
        os.kill(os.getpid(), signal.SIGKILL)


def finish(cell, where):
    """Carry a run to its end, and return its record."""
    assert attempt(cell, where) == 0
    contents = Store(where.root).read(where.study)
    assert contents.problems == []
    return contents.done[cell.spec.run_id]


def assert_same(first, second, cell, but=()):
    """Bitwise the same weights, and the same record less its times and the fields `but`."""
    records = [Store(place.root).read(place.study).done[cell.spec.run_id] for place in (first, second)]
    contents = [{k: v for k, v in record.without_times().items() if k not in but} for record in records]
    assert contents[0] == contents[1]
    weights = [
        torch.load(place.root / place.study / "weights" / f"{cell.spec.run_id}.pt", weights_only=True)
        for place in (first, second)
    ]
    assert weights[0].keys() == weights[1].keys()
    for name, tensor in weights[0].items():
        assert torch.equal(tensor, weights[1][name]), name
