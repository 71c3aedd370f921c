"""Launches here: runs tried again, hung, dead or of others. Handing runs to a cluster, as far as it needs none."""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from rich.console import Console

from tests.processes import FORKS, PATIENCE, fresh, until
from tests.runners import job
from tests.runners.cli.test_cli import changed, write
from tests.runners.small_run import THREAD, altered, spec
from vitinit.benchmark.grids import grid
from vitinit.benchmark.grids.schema import Cell, Grid
from vitinit.benchmark.records.epoch import EpochRow
from vitinit.benchmark.records.store import Store
from vitinit.benchmark.spec import InitializerSpec
from vitinit.initializers.errors import VitinitError
from vitinit.runners.basics import environment, machine
from vitinit.runners.basics.setting import Event, Execution, Setting, Unfinished
from vitinit.runners.basics.stop import Stop
from vitinit.runners.launching import cluster, jobs, local, snapshot
from vitinit.runners.launching.estimate import estimate
from vitinit.runners.launching.execute import came_free, execute
from vitinit.runners.launching.inline import Inline
from vitinit.runners.launching.local import Local
from vitinit.runners.launching.plan import plan
from vitinit.runners.launching.preflight import preflight
from vitinit.runners.launching.tidying import begin_anew, tidy
from vitinit.runners.loaders import choice
from vitinit.runners.one_run import claims
from vitinit.runners.one_run.carry_out import carry_out
from vitinit.runners.one_run.outcome import failure
from vitinit.runners.terminal.display import Display
from vitinit.runners.training.checkpoint import Checkpoints
from vitinit.slurm.profiles import Profile


@pytest.fixture
def setting(tmp_path: Path) -> Setting:
    return Setting(tmp_path, "tiny", tmp_path, Execution("cpu", THREAD, "inline"), {})


def claimed(setting: Setting, cell: Cell, silent: float = -9999) -> Path:
    """A claim of another machine, so many seconds after its last heartbeat; by default that is still to come."""
    folder = claims.folder(setting.root, setting.study, cell.run_id)
    folder.mkdir(parents=True)
    claim = folder / claims.CLAIM
    owner = claims.Owner(host="another", machine="another", pid=1, since=0.0)
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
    tally = execute(cells, setting, Inline(), OwnerGoes(Console(file=out, width=200)))
    assert (tally.finished, tally.elsewhere) == (2, 0)
    assert "2/2 done" in out.getvalue()


def test_a_run_that_stays_anothers_is_said_and_counted_once(setting: Setting) -> None:
    cells = [Cell("Kaiming uniform", spec(seed=seed)) for seed in (0, 1)]
    claimed(setting, cells[0])
    out = io.StringIO()
    tally = execute(cells, setting, Inline(), Display(Console(file=out, width=200)))
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
            display.end(Unfinished(cell.run_id, status, "a test"))
    assert "1/2 done" in out.getvalue()


def test_time_left_is_that_of_the_work_left(monkeypatch) -> None:
    """A quarter of the work in 100 s: three times as much is left."""
    cells, clock = [Cell("Kaiming uniform", spec(seed=seed)) for seed in (0, 1)], [50.0]
    monkeypatch.setattr("vitinit.runners.terminal.display.time", SimpleNamespace(monotonic=lambda: clock[0]))
    out = io.StringIO()
    with Display(Console(file=out, width=200)) as display:
        display.begin(cells, {cells[0].run_id: 1.0, cells[1].run_id: 3.0})
        clock[0] += 100
        display.start(cells[0])
        display.end(Unfinished(cells[0].run_id, "elsewhere", "a test"))
    assert "1/2 done, 5 min 0 s left" in out.getvalue()


def test_what_a_resumed_run_had_trained_before_is_no_work_of_this_session(monkeypatch) -> None:
    """One of ten epochs is left after the ninth, which took 100 s."""
    recipe = spec().recipe.model_copy(update={"epochs": 10})
    cell, clock = Cell("Kaiming uniform", spec(recipe=recipe)), [50.0]
    monkeypatch.setattr("vitinit.runners.terminal.display.time", SimpleNamespace(monotonic=lambda: clock[0]))
    out = io.StringIO()
    with Display(Console(file=out, width=200)) as display:
        display.begin([cell], {cell.run_id: 1.0})
        display.start(cell)
        display.event(Event(cell.run_id, resumed="epoch 9, step 0"))
        clock[0] += 100
        display.event(
            Event(cell.run_id, epoch=EpochRow(epoch=9, train_loss=1.0, lr=0.1, seconds=100.0, test_top1=10.0))
        )
        display.end(Unfinished(cell.run_id, "stopped", "a test"))
    assert "0/1 done, 1 min 40 s left" in out.getvalue()


HUNGRY = """
from typing import ClassVar
import torch
from vitinit.initializers.registry import Initializer

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
    end = carry_out(cell, replace(setting, sharing=2), Stop())
    assert (end.status, end.run_id) == ("crowded", cell.run_id)
    assert Store(tmp_path).outcome("tiny", cell.run_id) is None
    tally = execute([cell], setting, Inline(), Display(Console(file=out, width=200)))  # alone already
    assert (tally.failed, out.getvalue().count("failed, OutOfMemoryError")) == (1, 1)
    assert "tried again" not in out.getvalue()


MEETING = """
import os
from pathlib import Path
from typing import ClassVar
from tests.processes import until
from vitinit.initializers.registry import Initializer

class Meeting(Initializer):
    \"\"\"Goes on once a run on another GPU has begun, too.\"\"\"
    name: ClassVar[str] = "meeting"
    touches: ClassVar[tuple[str, ...]] = ()
    folder: str
    def apply(self, model, generator, progress):
        here = Path(self.folder)
        (here / os.environ["CUDA_VISIBLE_DEVICES"]).touch(exist_ok=False)
        until(lambda: len(list(here.iterdir())) == 2, "the other one")
"""


@pytest.mark.long
def test_runs_at_once_see_a_gpu_each(setting: Setting, tmp_path: Path, monkeypatch) -> None:
    """The first goes to one, the second to the other while the first is at work."""
    (tmp_path / "meeting.py").write_text(MEETING)
    (tmp_path / "seen").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(local, "_slots", lambda device: ["2", "GPU-5"])
    method = InitializerSpec(name="meeting:Meeting", params={"folder": str(tmp_path / "seen")})
    cells = [Cell("meeting", spec(method=method, seed=seed)) for seed in (0, 1)]
    tally = execute(cells, setting, Local(2), Display(Console(file=io.StringIO())))
    assert (tally.finished, tally.failed) == (2, 0)
    assert {path.name for path in (tmp_path / "seen").iterdir()} == {"2", "GPU-5"}


@pytest.mark.parametrize(("workers", "sharing"), [(2, 1), (3, 2), (4, 2)])
def test_a_run_is_told_how_many_may_share_its_gpu(setting: Setting, monkeypatch, workers: int, sharing: int) -> None:
    def start(context: object, cell: Cell, its: Setting, slot: str) -> None:
        raise VitinitError(f"{its.sharing} share it")

    monkeypatch.setattr(local, "_slots", lambda device: ["0", "1"])
    monkeypatch.setattr(local, "_start", start)
    with pytest.raises(VitinitError, match=f"^{sharing} share it"):
        execute([Cell("first", spec())], setting, Local(workers), Display(Console(file=io.StringIO())))


@pytest.mark.parametrize(
    ("visible", "number", "slots"),
    [(None, 2, ["0", "1"]), ("3, GPU-7", 2, ["3", "GPU-7"]), ("1,9", 1, ["1"]), ("", 0, []), (None, 0, [])],
)
def test_each_gpu_is_a_slot(monkeypatch, visible, number, slots):
    """Also of those that a job may see, up to the first one that is not there."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    monkeypatch.setattr(machine, "gpu_possible", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: number)
    assert machine.gpu_slots() == slots


def test_a_stop_ends_the_wait_for_silent_owners(setting: Setting) -> None:
    """Most of the time that a cluster gives to save would pass."""
    cell = Cell("Kaiming uniform", spec())
    claim = claimed(setting, cell, silent=2 * claims.SILENT_S)
    stop = Stop()
    stop.request("SIGUSR2")
    assert came_free([cell], setting, stop) == []
    claimed_long_ago = time.time() - 2 * claims.STALE_S
    os.utime(claim, (claimed_long_ago,) * 2)
    assert came_free([cell], setting, Stop()) == [cell]


def test_a_claim_that_cannot_be_read_is_not_waited_for(setting: Setting) -> None:
    """It is somebody else's, and nothing here will ever tell whether they are gone."""
    cell = Cell("Kaiming uniform", spec())
    claim = claims.folder(setting.root, setting.study, cell.run_id) / claims.CLAIM
    claim.mkdir(parents=True)
    os.utime(claim, (time.time() - 2 * claims.STALE_S,) * 2)
    assert came_free([cell], setting, Stop()) == []


def test_a_failed_run_comes_free_where_that_failure_is_tried_again(setting: Setting) -> None:
    cell = Cell("Kaiming uniform", spec())
    failed = failure(cell, setting, "RuntimeError", "no")
    Store(setting.root).write(failed)
    for retried, free in (({}, []), ({cell.run_id: failed.written}, [cell]), ({cell.run_id: "before"}, [])):
        assert came_free([cell], replace(setting, retried=retried), Stop()) == free


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


def test_a_batch_may_be_as_large_as_the_dataset_and_no_larger(setting: Setting) -> None:
    cells = [Cell("row", spec(recipe=spec().recipe.model_copy(update={"batch_size": size}))) for size in (100, 101)]
    assert list(preflight(cells[:1], setting).values()) == [100]
    with pytest.raises(VitinitError, match="batch_size 101 is more than the 100 training images"):
        preflight(cells, setting)


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
    here = replace(setting, execution=execution, checkpoint_minutes=0.0)
    display = Display(Console(file=Full(), width=200))
    with pytest.raises(OSError, match="No space left"):  # that of the last line, when all is over
        execute(cells, here, Inline() if executor == "inline" else Local(1), display)
    contents = Store(setting.root).read(setting.study)
    assert (contents.done.keys(), contents.failed) == ({cell.run_id for cell in cells}, {})


HANGS = '''
import os, signal, time
import torch
from typing import ClassVar
from vitinit.initializers.registry import Initializer

class Hangs(Initializer):
    """In the fifth step of training, for ever, and has its launcher told to stop."""
    name: ClassVar[str] = "hangs"
    touches: ClassVar[tuple[str, ...]] = ()
    launcher: int

    def apply(self, model, generator, progress):
        steps = []

        def step(module, arguments):
            steps.extend([1] * (type(module) is type(model) and module.training))
            if len(steps) == 5:
                os.kill(self.launcher, signal.SIGTERM)
                time.sleep(9999)

        torch.nn.modules.module.register_module_forward_pre_hook(step)
'''


def test_what_hangs_is_killed_after_its_grace_and_goes_on_from_its_checkpoint(setting, tmp_path, monkeypatch):
    (tmp_path / "hangs.py").write_text(HANGS)
    monkeypatch.syspath_prepend(tmp_path)
    cell = Cell("hangs", spec(method=InitializerSpec(name="hangs:Hangs", params={"launcher": os.getpid()})))
    out, stopped, every_step = io.StringIO(), False, replace(setting, checkpoint_minutes=0.0)
    local = replace(every_step, execution=Execution("cpu", THREAD, "local"), grace_s=0.1)
    try:
        execute([cell], local, Local(1), Display(Console(file=out, width=200)))
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
    tally = execute([cell], told, Local(1), Display(Console(file=out, width=200)))
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


# Clusters: sharing out, estimating, remembering, the copy of the code, jobs that are told to stop.


ROOT = Path(__file__).parents[3]
REFERENCE = ROOT / "results" / "reference"


@pytest.fixture(scope="module")
def cells():
    return grid.load("smoke").cells


def test_runs_are_shared_out_so_that_jobs_are_about_equally_long(cells):
    work = dict(zip([cell.run_id for cell in cells], [8, 7, 6, 5, 4, 3.0], strict=True))
    packs = cluster.packed(cells, work, 3)
    assert sorted(cell.run_id for pack in packs for cell in pack) == sorted(work)
    assert sorted(sum(work[cell.run_id] for cell in pack) for pack in packs) == [11, 11, 11]
    assert all(work[first.run_id] > work[second.run_id] for first, second in packs), "the longest first"


@pytest.mark.parametrize(
    ("seconds", "minutes", "workers", "expected"),
    [
        ({}, 60, 1, 1),  # nothing is known
        ({}, 60, 4, 4),
        ({"a": 60.0, "b": 60.0}, 60, 1, 10),  # ten minutes of work
        ({"a": 60.0}, 60, 4, 40),
        ({"a": 60.0}, 10, 1, 5),  # half the time of a job
        ({"a": 7200.0}, 60, 1, 1),
        ({"a": 0.5}, 60, 1, 300),  # all there are
    ],
)
def test_short_runs_fill_ten_minutes_and_never_more_than_half_the_limit(seconds, minutes, workers, expected):
    assert cluster.runs_per_job(seconds, 300, Profile(time=minutes), workers) == expected


def test_the_time_of_runs_like_these_is_what_records_of_one_machine_say(tmp_path):
    small = grid.load("small").cells
    longer = small[0].spec.recipe.model_copy(update={"epochs": 2 * small[0].spec.recipe.epochs, "lr": 1.0})
    twice = Cell(small[0].row, small[0].spec.model_copy(update={"recipe": longer}))
    seconds, machine = estimate([*small, twice], [tmp_path / "nowhere", REFERENCE / "small"], "cpu")
    assert seconds.keys() == {cell.run_id for cell in (*small, twice)}
    assert seconds[twice.run_id] == pytest.approx(2 * seconds[small[0].run_id])
    records = list(Store(REFERENCE).read("small").done.values())
    alike = [
        r.seconds for r in records if (r.spec.dataset, r.spec.model) == (small[0].spec.dataset, small[0].spec.model)
    ]
    assert seconds[small[0].run_id] == pytest.approx(sum(alike) / len(alike)), "rows of one model count together"
    assert machine == records[0].environment["processor"]
    for record, seconds_of_epoch in zip(records[:2], (10, 30), strict=True):
        gpu = {"execution": {"device": "cuda"}, "environment": record.environment | {"gpu": f"GPU {seconds_of_epoch}"}}
        Store(tmp_path).write(altered(record, **gpu, seconds=seconds_of_epoch * record.spec.recipe.epochs))
    cell = Cell(records[1].row, records[1].spec)
    found = estimate([cell], [tmp_path / "small"], "cuda", "GPU 30")
    assert found == ({cell.run_id: 30 * cell.spec.recipe.epochs}, "GPU 30")
    for place, device, here in (("small", "cuda", "GPU"), ("small", "cpu", None), ("other", "cuda", None)):
        assert estimate([cell], [tmp_path / place], device, here) == ({}, "")


def hand_out(root: Path, written: str, study: str = "study", **run_ids: list[str]) -> Path:
    folder = jobs.folder(root, study) / written
    folder.mkdir(parents=True)
    by_job = {job.removeprefix("job_"): tuple(ids) for job, ids in run_ids.items()}
    jobs.write(folder, jobs.Dispatch(written=written, name=f"{study}-{written}", profile="p", code="c", jobs=by_job))
    return folder


def test_the_last_job_of_each_run_counts(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    first = hand_out(tmp_path, "2026-01-01", job_7_0=["a", "b"], job_7_1=["c"])
    hand_out(tmp_path, "2026-01-02", job_9=["b"])
    handed = jobs.look(tmp_path, "study").handed
    assert {run_id: job.job_id for run_id, job in handed.items()} == {"a": "7_0", "b": "9", "c": "7_1"}
    assert handed["c"] == jobs.Job("7_1", "study-2026-01-01", first, "2026-01-01", ("c",))
    (first / "dispatch.json").write_text("{")
    assert jobs.look(tmp_path, "study").handed.keys() == {"b"}
    assert jobs.look(tmp_path, "other") == jobs.StudyJobs()


def test_an_older_job_that_still_waits_counts_more_than_a_later_one_that_is_over(tmp_path, cluster_says):
    hand_out(tmp_path, "2026-01-01", job_7=["a"])
    hand_out(tmp_path, "2026-01-02", job_9=["a"])
    cluster_says(squeue="echo '7|PENDING|5:00||study-2026-01-01|Priority'")
    look = jobs.look(tmp_path, "study")
    assert look.handed["a"].job_id == "7"
    assert (look.over("7"), look.over("9"), look.over("8"), look.over(None)) == (False, True, False, False)
    assert jobs.describe(look.handed["a"], look.states["7"]) == "job 7 pending (Priority)"


def test_a_job_id_that_a_new_cluster_counts_again_is_another_job(tmp_path, cluster_says):
    hand_out(tmp_path, "2026-01-01", job_7_0=["a"])
    cluster_says(
        squeue="echo '7_0|RUNNING|5:00|node1|somebody-elses|None'", sacct="echo '7_0|FAILED|1:0|node1|somebody-elses'"
    )
    look = jobs.look(tmp_path, "study")
    assert look.states == {}
    assert jobs.ended(look.jobs) == {"7_0": "job 7_0 has gone, and the cluster does not say how"}
    cluster_says(squeue="echo '7_0|RUNNING|5:00|node1|study-2026-01-01|None'")
    look = jobs.look(tmp_path, "study")
    described = jobs.describe(look.handed["a"], look.states["7_0"])
    assert described == "waits for its turn in job 7_0 on node1, which has 5:00 left"


def states(cells, root: Path) -> dict[str, tuple[str, str]]:
    planned, _ = plan(Grid("study", "", cells, []), Store(root), Path("nowhere"))
    return {item.cell.run_id: (item.state, item.reason) for item in planned}


def setting_of(root: Path) -> Setting:
    return Setting(root, "study", root, Execution("cpu", 1, "slurm"), {"source": environment.source_hash()})


def test_what_cannot_be_asked_is_not_handed_out_again(cells, tmp_path, cluster_says):
    ids = [cell.run_id for cell in cells]
    hand_out(tmp_path, "2026-01-01", job_7_0=ids[:1])
    cluster_says(squeue="echo Unable to contact slurm controller >&2; exit 1")
    found = states(cells, tmp_path)
    state, reason = found[ids[0]]
    assert state == "queued"
    assert "job 7_0" in reason
    assert "Unable to contact slurm controller" in reason
    assert found[ids[1]] == ("to do", "")


def test_a_failure_is_not_hidden_by_the_job_that_had_it(cells, tmp_path, cluster_says):
    first, second, third = (cell.run_id for cell in cells[:3])
    cluster_says(squeue="echo '7_0|RUNNING|5:00|node1|study-2026-01-02|None'")
    for cell, written in ((cells[0], "2026-01-03"), (cells[1], "2026-01-01")):
        failed = failure(cell, setting_of(tmp_path), "RuntimeError", "it broke")
        Store(tmp_path).write(failed.model_copy(update={"written": written}))
    hand_out(tmp_path, "2026-01-02", job_7_0=[first, second, third])
    found = states(cells, tmp_path)
    assert found[first] == ("failed", "RuntimeError: it broke")
    assert found[second][0] == "queued", "it is tried again in this job"
    assert found[third][0] == "queued"


def test_a_run_is_not_live_once_its_job_is_over_however_fresh_its_heartbeat(cells, tmp_path, cluster_says):
    run_id = cells[0].run_id
    with claims.held(claims.folder(tmp_path, "study", run_id), Stop()) as claim:
        elsewhere = claim.owner.model_copy(update={"machine": "another node", "job": "7_0"})
    claim.path.write_text(elsewhere.model_dump_json())
    cluster_says(squeue="true", scontrol="exit 1", sacct="echo '7_0|CANCELLED|0:0|node1|study-2026-01-01'")
    assert states(cells, tmp_path)[run_id][0] == "live", "a job that nobody here handed out"
    hand_out(tmp_path, "2026-01-01", job_7_0=[run_id])
    assert states(cells, tmp_path)[run_id] == ("to do", "job 7_0 ended: CANCELLED")
    cluster_says(squeue="echo '7_0|RUNNING|5:00|node1|study-2026-01-01|None'")
    assert states(cells, tmp_path)[run_id][0] == "live"


def test_a_failure_is_recorded_where_there_is_no_gpu_with_the_command_that_handed_it_out(cells, tmp_path):
    """On a login node, or on one whose driver is broken, of a run that was to use a GPU."""
    code = {"argv": ["vitinit", "run", "study"]}
    setting = replace(setting_of(tmp_path), execution=Execution("cuda", 1, "slurm"), code=code)
    failed = failure(cells[0], setting, "OutOfMemory", "its job used more memory")
    assert failed.execution["device"] == "cuda"
    assert failed.environment["gpu"] is None or failed.environment["cuda"]
    assert failed.environment["argv"] == code["argv"]


def test_a_copy_of_the_code_is_what_its_hash_says_and_imports_by_itself(tmp_path):
    copy = snapshot.take(tmp_path / "code")
    assert snapshot.take(tmp_path / "code") == copy
    assert [path.name for path in (tmp_path / "code").iterdir()] == [copy.name]
    assert environment.source_hash(copy / "vitinit") == environment.source_hash()
    script = "from vitinit.runners.launching import cluster, jobs; print(cluster.__file__, jobs.__file__)"
    done = fresh("-c", script, cwd=copy, path=(copy,))
    assert done.stdout.split() == [f"{copy}/vitinit/runners/launching/{name}.py" for name in ("cluster", "jobs")], (
        done.stderr
    )


def test_a_damaged_copy_of_the_code_is_put_aside_and_made_anew(tmp_path):
    copy, asides = snapshot.take(tmp_path / "code"), []
    for damage in ("gone", "edited", "more"):
        file = copy / "vitinit" / "runners" / ("more.py" if damage == "more" else "__init__.py")
        if damage == "gone":
            file.unlink()
        else:
            file.write_text("x = 1\n")
        assert snapshot.take(tmp_path / "code") == copy
        assert environment.source_hash(copy / "vitinit") == environment.source_hash()
        (aside,) = (path for path in (tmp_path / "code").iterdir() if path not in (copy, *asides))
        assert aside.name.startswith(f"{copy.name}.damaged-")
        assert (aside / "vitinit/runners/__init__.py").exists() == (damage != "gone"), "nothing is deleted"
        asides.append(aside)


def test_jobs_that_nobody_would_know_of_are_cancelled(cells, tmp_path, cluster_says, monkeypatch):
    """They were submitted, and their ids cannot be written down."""
    cluster_says(scancel=f'echo "$@" >> {tmp_path}/cancelled')
    monkeypatch.setattr(cluster, "submit", lambda *_, **__: ["7_0", "7_1"])
    monkeypatch.setattr(jobs, "write", lambda *_: (tmp_path / "nowhere").stat())
    packs = [[cell] for cell in cells[:2]]
    with pytest.raises(VitinitError, match="cannot write to .*No such file"):
        cluster.dispatch(packs, setting_of(tmp_path), 1, Profile(), environment.IMPORTED_FROM)
    assert (tmp_path / "cancelled").read_text() == "7_0 7_1\n"


def test_a_job_that_finds_other_code_records_that_and_trains_nothing(cells, tmp_path, monkeypatch):
    for name in ("WORLD_SIZE", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)
    setting = Setting(tmp_path, "smoke", tmp_path, Execution("cpu", 1, "slurm"), {})
    pack = cluster.Pack(tuple(cells[:2]), setting, 1, "another hash")
    with pytest.raises(Exception, match="is not what this job was submitted with"):
        cluster.carry_out_pack(pack)
    contents = Store(tmp_path).read("smoke")
    assert contents.done == {}
    assert contents.failed.keys() == {cell.run_id for cell in cells[:2]}
    assert "submitted with" in next(iter(contents.failed.values())).message


def test_only_the_run_that_was_at_work_is_blamed_for_its_jobs_memory(cells, tmp_path, monkeypatch):
    at_work, waiting, saved = cells[:3]
    setting = Setting(tmp_path, "smoke", tmp_path, Execution("cpu", 1, "slurm"), {})
    folder = tmp_path / "jobs"
    folder.mkdir()
    log = folder / "12_0_0_log.out"
    log.write_text("slurmstepd-node1: error: Detected 1 oom-kill event(s) in StepId=12.0 cgroup.\n")
    handed = {cell.run_id: jobs.Job("12_0", "smoke-1", folder, "", ()) for cell in (at_work, waiting, saved)}
    monkeypatch.setenv("SLURM_JOB_ID", "12_0")
    for cell in (at_work, saved):
        with claims.held(claims.folder(tmp_path, "smoke", cell.run_id), Stop()) as claim:
            owner = claim.owner
        if cell is at_work:  # killed: not released
            claim.path.write_text(owner.model_dump_json())
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(jobs, "look", lambda root, study: SimpleNamespace(handed=handed))
    assert cluster.settle([at_work, waiting, saved], setting).keys() == {at_work.run_id}
    failed = Store(tmp_path).read("smoke").failed
    assert failed.keys() == {at_work.run_id}
    assert failed[at_work.run_id].error == "OutOfMemory"
    log.write_text("a run that prints oom-kill event is not believed\n")
    Store(tmp_path).supersede("smoke", at_work.run_id)
    assert cluster.settle([at_work], setting) == {}
    assert Store(tmp_path).read("smoke").failed == {}


def test_what_failed_before_the_job_is_not_recorded_twice(cells, tmp_path):
    setting = Setting(tmp_path, "smoke", tmp_path, Execution("cpu", 1, "slurm"), {})
    before = failure(cells[0], setting, "RuntimeError", "before")
    Store(tmp_path).write(before)
    cluster._record_failures(cluster.Pack(tuple(cells[:2]), setting, 1, ""), cells[:2], "OSError", "no such folder")
    failed = Store(tmp_path).read("smoke").failed
    assert failed[cells[0].run_id].message == "before"
    assert failed[cells[1].run_id].message == "no such folder"


@pytest.mark.long
def test_a_job_that_is_told_that_its_time_ends_saves_and_comes_back(tmp_path, cluster_says):
    cluster_says(scontrol=f'echo "$@" >> {tmp_path}/asked; echo "JobId=7 JobState=RUNNING PreemptTime=None "')
    process = FORKS.Process(target=job.carried_out, args=(tmp_path, os.environ["PATH"]))
    process.start()
    checkpoints = "smoke/unfinished/*/step-*.ckpt"
    try:
        until(lambda: len(list(tmp_path.glob(checkpoints))) >= 2, "checkpoints", process)
        os.kill(process.pid, signal.SIGUSR2)
        process.join(PATIENCE)
        assert process.exitcode == 0
    finally:
        process.kill()
    assert "requeue 7" in (tmp_path / "asked").read_text()
    contents = Store(tmp_path).read("smoke")
    assert (contents.done, contents.failed, len(list(tmp_path.glob(checkpoints)))) == ({}, {}, 2)


@pytest.mark.parametrize(
    ("told", "preempted", "requeued", "failures"),
    [("SIGUSR2", False, False, ["OutOfTime"]), ("SIGUSR2", True, True, []), ("SIGTERM", True, True, [])],
)
def test_a_job_that_got_no_step_further_comes_back_where_it_makes_way_else_its_run_has_failed(
    tmp_path, cluster_says, monkeypatch, told, preempted, requeued, failures
):
    time_ = "2026-01-01T00:00:00" if preempted else "None"
    cluster_says(scontrol=f'echo "$@" >> {tmp_path}/asked; echo "JobId=7 JobState=RUNNING PreemptTime={time_} "')
    for name, value in job.JOB.items():
        monkeypatch.setenv(name, value)

    def interrupted(pack: cluster.Pack, stop: Stop) -> None:
        with claims.held(claims.folder(tmp_path, "smoke", pack.cells[0].run_id), Stop()):
            raise KeyboardInterrupt(told)

    monkeypatch.setattr(cluster, "_carry_out", interrupted)
    with pytest.raises(SystemExit) as end:
        cluster.carry_out_pack(job.pack(tmp_path))
    assert end.value.code == (0 if requeued else 1)
    assert ("requeue 7" in (tmp_path / "asked").read_text()) == requeued
    contents = Store(tmp_path).read("smoke")
    assert (contents.done, [failed.error for failed in contents.failed.values()]) == ({}, failures)
