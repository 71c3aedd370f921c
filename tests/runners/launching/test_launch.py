"""Launches: runs that are tried again, that others have, that hang, die or cannot print; what killed ones leave."""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from rich.console import Console
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from benchmark.grids.resolve import resolve_model
from benchmark.grids.schema import Cell
from benchmark.models.build import build_model
from benchmark.records.store import Store
from benchmark.spec import InitializerSpec
from initializers.errors import VitinitError
from runners.basics.setting import Ended, Execution, Interval, Setting
from runners.basics.stop import Stop
from runners.launching.launch import came_free, estimated_work, launch
from runners.launching.preflight import preflight
from runners.launching.tidying import begin_anew, tidy
from runners.launching.together import to_its_end
from runners.loaders import choice
from runners.one_run import claims
from runners.one_run.carry_out import carry_out
from runners.terminal.display import Display
from runners.training.checkpoint import Checkpoints
from runners.training.distributed import ALONE
from tests.runners.cli.test_cli import changed, write
from tests.runners.small_run import THREAD, spec


@pytest.fixture
def setting(tmp_path: Path) -> Setting:
    return Setting(tmp_path, "tiny", tmp_path, Execution("cpu", THREAD, "inline"), {})


def claimed(setting: Setting, cell: Cell, silent: float = -9999) -> Path:
    """A claim of another machine, so many seconds after its last heartbeat; by default that is still to come."""
    folder = claims.folder(setting.root, setting.study, cell.run_id)
    folder.mkdir(parents=True)
    claim = folder / "claim-0001.json"
    owner = claims.Owner(host="another", machine="another", pid=1, process_started="1", since=0.0)
    claim.write_text(owner.model_dump_json())
    os.utime(claim, (time.time() - silent,) * 2)
    return claim


def test_a_run_that_came_free_is_carried_out_and_ends_once(setting: Setting) -> None:
    cells = [Cell("Kaiming uniform", spec(seed=seed)) for seed in (0, 1)]
    claim = claimed(setting, cells[0])

    class OwnerGoes(Display):
        def put_off(self, run_id: str, why: str) -> None:
            super().put_off(run_id, why)
            claim.unlink()

    out = io.StringIO()
    tally = launch(cells, setting, 1, OwnerGoes(Console(file=out, width=200)))
    assert (tally.finished, tally.elsewhere) == (2, 0)
    assert "2/2 done" in out.getvalue()


def test_a_run_that_stays_anothers_is_said_and_counted_once(setting: Setting) -> None:
    cells = [Cell("Kaiming uniform", spec(seed=seed)) for seed in (0, 1)]
    claimed(setting, cells[0])
    out = io.StringIO()
    tally = launch(cells, setting, 1, Display(Console(file=out, width=200)))
    assert (tally.finished, tally.elsewhere) == (1, 1)
    assert "2/2 done" in out.getvalue()
    assert out.getvalue().count("being run by") == 1


def test_a_run_that_was_stopped_does_not_count_as_done() -> None:
    """Its share of the bar stays as it was."""
    cells, out = [Cell("Kaiming uniform", spec(seed=seed)) for seed in (0, 1)], io.StringIO()
    with Display(Console(file=out, width=200)) as display:
        display.begin(cells, {cell.run_id: 1.0 for cell in cells})
        for cell, status in zip(cells, ("elsewhere", "stopped"), strict=True):
            display.start(cell)
            display.end(Ended(cell.run_id, status, "a test"))
    assert "1/2 done" in out.getvalue()


HUNGRY = """
from typing import ClassVar
import torch
from initializers.registry import Initializer

class Hungry(Initializer):
    \"\"\"Never has enough memory.\"\"\"
    name: ClassVar[str] = "hungry"
    touches: ClassVar[tuple[str, ...]] = ()
    def apply(self, model, generator, progress):
        raise torch.OutOfMemoryError("none left")
"""


def test_a_run_without_memory_fails_alone_and_is_tried_again_where_it_was_beside_others(
    setting: Setting, tmp_path: Path, monkeypatch
) -> None:
    """Whoever is stopped before it is tried again alone goes on with it."""
    (tmp_path / "hungry.py").write_text(HUNGRY)
    monkeypatch.syspath_prepend(tmp_path)
    cell, out = Cell("hungry", spec(method=InitializerSpec(name="hungry:Hungry"))), io.StringIO()
    end = to_its_end(cell, replace(setting, beside_others=True), Stop(), lambda event: None, ALONE)
    assert (end.status, end.run_id) == ("crowded", cell.run_id)
    assert Store(tmp_path).outcome("tiny", cell.run_id) is None
    tally = launch([cell], setting, 2, Display(Console(file=out, width=200)))  # inline: alone already
    assert (tally.failed, out.getvalue().count("failed, OutOfMemoryError")) == (1, 1)
    assert "tried again" not in out.getvalue()


def test_a_stop_ends_the_wait_for_silent_owners(setting: Setting) -> None:
    """Most of the time that a cluster gives to save would pass."""
    cell = Cell("Kaiming uniform", spec())
    claimed(setting, cell, silent=5 * claims.BEAT_S)
    stop = Stop()
    stop.request("SIGUSR2")
    assert came_free([cell], setting, stop) == []
    claimed_long_ago = time.time() - 2 * claims.STALE_S
    os.utime(claims.folder(setting.root, "tiny", cell.run_id) / "claim-0001.json", (claimed_long_ago,) * 2)
    assert came_free([cell], setting) == [cell]


@pytest.mark.parametrize(("ahead", "silent", "free"), [(1000, -500, False), (-1000, 500, True)])
def test_a_run_comes_free_by_the_clock_that_claiming_goes_by(setting, monkeypatch, ahead, silent, free) -> None:
    """That of the file server, which may be another than ours: by ours it would be free and be refused for ever."""
    cell, ours = Cell("Kaiming uniform", spec()), time.time
    claimed(setting, cell, silent)
    monkeypatch.setattr(time, "time", lambda: ours() + ahead)
    assert came_free([cell], setting) == ([cell] if free else [])
    assert sorted(path.name for path in claims.folder(setting.root, "tiny", cell.run_id).iterdir()) == [
        "claim-0001.json"
    ]


@pytest.mark.parametrize("what", ["folder", "claim"])
def test_what_cannot_be_read_is_not_waited_for(setting: Setting, what: str) -> None:
    """It is somebody else's, and nothing here will ever tell whether they are gone."""
    cell = Cell("Kaiming uniform", spec())
    folder = claims.folder(setting.root, setting.study, cell.run_id)
    if what == "folder":
        folder.parent.mkdir(parents=True)
        folder.write_text("not a folder")
    else:
        claim = folder / "claim-0001.json"
        claim.mkdir(parents=True)
        long_ago = time.time() - 2 * claims.STALE_S
        os.utime(claim, (long_ago, long_ago))
    assert claims.live(folder) is claims.UNKNOWN
    assert came_free([cell], setting) == []


def test_no_forced_run_is_touched_where_another_is_being_run(setting: Setting) -> None:
    cells = [Cell("Kaiming uniform", spec(seed=seed)) for seed in (0, 1)]
    checkpoint = claims.folder(setting.root, setting.study, cells[0].run_id) / "step-00000010.ckpt"
    checkpoint.parent.mkdir(parents=True)
    checkpoint.write_text("of the first")
    claimed(setting, cells[1])
    runs = {cell.run_id[:4]: cell for cell in cells}
    with pytest.raises(VitinitError, match=f"--force {cells[1].run_id[:4]}: being run by host"):
        begin_anew(runs, Store(setting.root), setting.study)
    assert checkpoint.read_text() == "of the first"


def test_a_job_to_be_handed_over_has_not_the_memory_of_the_login_node(setting: Setting, monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(choice, "main_memory", lambda: 1)
    monkeypatch.setitem(sys.modules, "ffcv", None)
    cell = Cell("Kaiming uniform", spec())
    auto = replace(setting.execution, loader="auto")
    with pytest.raises(VitinitError, match="FFCV has to read it"):
        preflight([cell], replace(setting, execution=auto))
    assert sum(preflight([cell], replace(setting, execution=replace(auto, executor="slurm"))).values()) > 0
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    with pytest.raises(VitinitError, match="FFCV has to read it"):
        preflight([cell], replace(setting, execution=replace(auto, executor="slurm")))


def test_work_is_in_proportion_to_the_operations_that_torch_counts() -> None:
    """So that the longest runs come first whatever their families are."""
    ratios = []
    for preset in ("vit_micro", "swin_micro", "convmixer_micro"):
        model = resolve_model({"preset": preset, "image_size": 32, "patch_size": 4})
        with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter, torch.no_grad():
            build_model(model, 10).eval()(torch.zeros(1, 3, 32, 32))
        run = spec(model=model)
        ratios.append(estimated_work(run, 100) / (run.recipe.epochs * 100 * counter.get_total_flops()))
    assert ratios == pytest.approx([ratios[0]] * 3, rel=0.02)


class Full(io.StringIO):
    """A disk that is full from some byte on."""

    room = 10

    def write(self, text: str) -> int:
        self.room -= len(text)
        if self.room < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(text)


@pytest.mark.parametrize("executor", ["inline", "local"])
def test_what_cannot_be_printed_ends_no_run(setting: Setting, executor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor one that says that it cannot save."""
    monkeypatch.setattr(Checkpoints, "save", lambda self, *_: self.report("no checkpoint: No space left on device"))
    cells = [Cell("Kaiming uniform", spec(seed=seed)) for seed in (0, 1)]
    execution = replace(setting.execution, executor=executor)
    here = replace(setting, execution=execution, checkpoint=Interval(steps=1))
    display = Display(Console(file=Full(), width=200))
    with pytest.raises(OSError, match="No space left"):  # that of the last line, when all is over
        launch(cells, here, 1, display)
    contents = Store(setting.root).read(setting.study)
    assert (contents.done.keys(), contents.failed) == ({cell.run_id for cell in cells}, {})


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


def test_what_hangs_is_killed_after_its_grace_and_goes_on_from_its_checkpoint(setting, tmp_path, monkeypatch):
    (tmp_path / "hangs.py").write_text(HANGS)
    monkeypatch.syspath_prepend(tmp_path)
    cell = Cell("hangs", spec(method=InitializerSpec(name="hangs:Hangs", params={"launcher": os.getpid()})))
    out, stopped, every_step = io.StringIO(), False, replace(setting, checkpoint=Interval(steps=1))
    local = replace(every_step, execution=Execution("cpu", THREAD, "local"), grace_s=0.1)
    try:
        launch([cell], local, 1, Display(Console(file=out, width=200)))
    except KeyboardInterrupt:
        stopped = True
    assert stopped
    assert "killed before it had saved; its last checkpoint counts" in out.getvalue()
    assert Store(tmp_path).outcome("tiny", cell.run_id) is None
    record = carry_out(cell, every_step, Stop())
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
    told = replace(setting, code={"": Dies(how)}, execution=Execution("cpu", THREAD, "local"))
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
