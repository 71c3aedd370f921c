"""Runs in processes of their own that hang, or die before they begin; and what killed ones have left behind."""

from __future__ import annotations

import io
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from benchmark.grids.schema import Cell
from benchmark.records.store import Store
from benchmark.spec import InitializerSpec
from runners.basics.setting import Execution, Interval, Setting
from runners.basics.stop import Stop
from runners.launching.launch import launch
from runners.launching.tidying import tidy
from runners.one_run import claims
from runners.one_run.carry_out import carry_out
from runners.terminal.display import Display
from tests.runners.cli.test_cli import changed, write
from tests.runners.small_run import THREAD, spec

HANGS = '''
import os, signal, time
from typing import ClassVar
from initializers.registry import Initializer

class Hangs(Initializer):
    """In the fifth step of training, for ever, and has its launcher told to stop."""
    name: ClassVar[str] = "hangs"
    touches: ClassVar[tuple[str, ...]] = ()
    launcher: int

    def apply(self, model, generator, progress):
        steps = []

        def step(model, arguments):
            steps.extend([1] * model.training)
            if len(steps) == 5:
                os.kill(self.launcher, signal.SIGTERM)
                time.sleep(9999)

        model.register_forward_pre_hook(step)
'''


@pytest.fixture
def setting(tmp_path: Path) -> Setting:
    return Setting(tmp_path, "tiny", tmp_path, Execution("cpu", THREAD, "local"), {}, Interval(steps=1))


def test_what_hangs_is_killed_after_its_grace_and_goes_on_from_its_checkpoint(setting, tmp_path, monkeypatch):
    (tmp_path / "hangs.py").write_text(HANGS)
    monkeypatch.syspath_prepend(tmp_path)
    cell = Cell("hangs", spec(method=InitializerSpec(name="hangs:Hangs", params={"launcher": os.getpid()})))
    out, stopped = io.StringIO(), False
    try:
        launch([cell], replace(setting, grace_s=0.1), 1, Display(Console(file=out, width=200)))
    except KeyboardInterrupt:
        stopped = True
    assert stopped
    assert "killed before it had saved; its last checkpoint counts" in out.getvalue()
    assert Store(tmp_path).outcome("tiny", cell.run_id) is None
    record = carry_out(cell, replace(setting, execution=Execution("cpu", THREAD, "inline")), Stop())
    assert [session.from_step for session in record.sessions] == [0, 4]


class Dies:
    """Its process gets a SIGTERM when it reads this, before anything of ours runs there."""

    def __init__(self, how: int) -> None:
        self.how = how

    def __reduce__(self):
        return _terminated, (self.how,)


def _terminated(how: int) -> None:
    signal.pthread_sigmask(how, [signal.SIGTERM])
    os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.parametrize(
    ("how", "why"),
    [
        (signal.SIG_UNBLOCK, "its process was killed by SIGTERM before it had begun"),
        (signal.SIG_BLOCK, "SIGTERM"),  # as a launch starts its processes: it is heeded once it can be
    ],
)
def test_a_process_that_is_told_to_stop_before_it_begins_is_no_failure(setting, tmp_path, how, why):
    cell, out = Cell("small", spec()), io.StringIO()
    told = replace(setting, code={"": Dies(how)})
    tally = launch([cell], told, 1, Display(Console(file=out, width=200)), work={cell.run_id: 1.0})
    assert (tally.stopped, tally.failed, tally.finished) == (1, 0, 0)
    assert f"stopped, {why}\n" in out.getvalue()
    assert Store(tmp_path).outcome("tiny", cell.run_id) is None


def test_what_killed_runs_have_left_is_removed_once_they_are_recorded(tmp_path, here):
    run = ("run", write(tmp_path / "tiny.yaml", changed(blocks__0__recipe__epochs=1)), "--executor", "inline")
    assert here(*run)[0] == 0
    results = tmp_path / "results/local"
    left, held = (claims.folder(results, "tiny", run_id) for run_id in Store(results).read("tiny").done)
    unrecorded = claims.folder(results, "tiny", "0" * 16)
    for folder in (left, unrecorded):
        folder.mkdir(parents=True)
        (folder / "step-00000001.ckpt").touch()
    with claims.held(held, Stop()):
        assert here(*run)[0] == 0
        assert (left.exists(), held.exists(), unrecorded.exists()) == (False, True, True)
    tidy(results, "tiny", {held.name, unrecorded.name})  # whose record has been set aside since it was planned
    assert (held.exists(), unrecorded.exists()) == (False, True)
