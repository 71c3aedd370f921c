"""Launches here: runs tried again, hung, dead or of others. Handing runs to a cluster, as far as it needs none."""

from __future__ import annotations

import io
import os
import signal
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from tests.processes import FORKS, PATIENCE, until
from tests.runners import job
from tests.runners.small_run import THREAD, spec
from vitinit.benchmark.grids import grid
from vitinit.benchmark.grids.schema import Cell, Grid
from vitinit.benchmark.records.record import EpochRow
from vitinit.benchmark.records.store import Store
from vitinit.benchmark.spec import InitializerSpec
from vitinit.runners.basics import environment
from vitinit.runners.basics.setting import Event, Execution, Setting, Unfinished
from vitinit.runners.basics.stop import Stop
from vitinit.runners.launching import cluster, jobs
from vitinit.runners.launching.execute import execute
from vitinit.runners.launching.inline import Inline
from vitinit.runners.launching.local import Local
from vitinit.runners.launching.plan import plan
from vitinit.runners.one_run import claims
from vitinit.runners.one_run.carry_out import carry_out
from vitinit.runners.one_run.outcome import failure
from vitinit.runners.terminal.display import Display


@pytest.fixture
def setting(tmp_path: Path) -> Setting:
    return Setting(tmp_path, "tiny", tmp_path, Execution("cpu", THREAD, "inline"), {})


def test_a_run_that_came_free_is_carried_out_and_ends_once(setting: Setting) -> None:
    cells = [Cell("Kaiming uniform", spec(seed=seed)) for seed in (0, 1)]
    claim = claims.folder(setting.root, setting.study, cells[0].run_id) / "claim-1.json"
    claim.parent.mkdir(parents=True)
    claim.write_text(claims.Owner(host="another", machine="another", pid=1).model_dump_json())

    class OwnerGoes(Display):
        def put_off(self, run_id: str, why: str) -> None:
            super().put_off(run_id, why)
            claim.unlink()

    out = io.StringIO()
    tally = execute(cells, setting, Inline(), OwnerGoes(Console(file=out, width=200)))
    assert (tally.finished, tally.elsewhere) == (2, 0)
    assert "2/2 done, 0 s left" in out.getvalue()


def test_what_a_resumed_run_had_trained_before_is_no_work_of_this_session(monkeypatch) -> None:
    """One of ten epochs is left after the ninth, which took 100 s."""
    recipe = spec().recipe.model_copy(update={"epochs": 10})
    cell, clock = Cell("Kaiming uniform", spec(recipe=recipe)), [50.0]
    monkeypatch.setattr("vitinit.runners.terminal.display.time", SimpleNamespace(monotonic=lambda: clock[0]))
    out = io.StringIO()
    with Display(Console(file=out, width=200)) as display:
        display.begin([cell])
        display.event(Event(cell.run_id, resumed="epoch 9, step 0"))
        clock[0] += 100
        display.event(
            Event(cell.run_id, epoch=EpochRow(epoch=9, train_loss=1.0, lr=0.1, seconds=100.0, test_top1=10.0))
        )
        display.end(Unfinished(cell.run_id, "stopped", "a test"))
    assert "0/1 done, 1 min 40 s left" in out.getvalue()


HANGS = '''
import os, signal, time
import torch
from typing import ClassVar
from vitinit.initializers.registry import Initializer

class Hangs(Initializer):
    """In the fifth step of training, for ever, and has its launcher told to stop."""
    name: ClassVar[str] = "hangs"
    touches: ClassVar[tuple[str, ...]] = ("*.qkv.weight",)
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
    assert f"stopped, {why}  {cell.run_id[:8]}\n" in out.getvalue()
    assert Store(tmp_path).outcome("tiny", cell.run_id) is None


# Clusters: what is known of jobs, and jobs that are told to stop.


@pytest.fixture(scope="module")
def cells():
    return grid.load("smoke").cells


def hand_out(root: Path, written: str, study: str = "study", **run_ids: list[str]) -> Path:
    folder = jobs.folder(root, study) / written
    folder.mkdir(parents=True)
    fields = {"name": f"{study}-{written}", "written": written, "folder": folder}
    jobs.write(
        folder, tuple(jobs.Job(job_id=i.removeprefix("job_"), run_ids=ids, **fields) for i, ids in run_ids.items())
    )
    return folder


def test_runs_are_handed_over_with_a_copy_of_the_code_and_followed_to_their_end(
    vitinit, undisturbed, cells, cluster_says, monkeypatch
):
    """All else that is said of jobs is in `golden/cli/slurm-jobs.txt`."""
    monkeypatch.setattr(cluster, "LOOK_S", 0)
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    cluster_says(
        sbatch="echo Submitted batch job 7", scontrol="echo MaxArraySize = 4", squeue="echo >> looks", sacct="true"
    )
    run, root = ("run", "smoke", "--executor", "slurm", "--only", "row=Mimetic", "--wait"), Path("results/local")
    code, out, err = vitinit(*run)
    looks = Path("looks").read_text()
    (handed,) = jobs.look(root, "smoke")
    logs = handed.folder.absolute()
    assert f"handed to SLURM: job 7; logs: {logs}\nsee: vitinit status, vitinit slurm cancel\n" in out, err
    assert "stopped, job 7 has gone, and the cluster does not say how" in out
    assert (code, looks) == (1, "\n\n")
    (cell,) = (cell for cell in cells if cell.row == "Mimetic")
    assert handed.run_ids == (cell.run_id,)
    assert (logs / "code/vitinit/runners/launching/cluster.py").exists()
    failed = Store("elsewhere").write(failure(cell, replace(setting_of(root), study="smoke"), "OSError", "no disk"))
    pending = f"echo '7|PENDING|1:00||{handed.name}|Priority'"
    cluster_says(squeue=f"[ -e asked ] && cp {failed} {root}/smoke; touch asked; {pending}")
    code, out, err = vitinit(*run)
    assert (code, "failed, OSError: no disk" in out) == (1, True), out + err


def claimed(folder: Path, job_id: str) -> None:
    """Claim a run as a job of another node."""
    folder.mkdir(parents=True)
    owner = claims.Owner(host="node1", machine="another", pid=1, job=job_id)
    (folder / "claim-1.json").write_text(owner.model_dump_json())


def states(cells, root: Path) -> dict[str, tuple[str, str]]:
    planned, _ = plan(Grid("study", "", cells, []), Store(root), Path("nowhere"))
    return {item.cell.run_id: (item.state, item.reason) for item in planned}


def setting_of(root: Path) -> Setting:
    return Setting(root, "study", root, Execution("cpu", 1, "slurm"), {"source": environment.source_hash()})


def test_a_failure_is_not_hidden_by_the_job_that_had_it(cells, tmp_path, cluster_says):
    first, second, third = (cell.run_id for cell in cells[:3])
    cluster_says(squeue="echo '7_0|RUNNING|5:00|node1|study-2026-01-02|None'")
    for cell, written in ((cells[0], "2026-01-03"), (cells[1], "2026-01-01")):
        failed = failure(cell, setting_of(tmp_path), "RuntimeError", "it broke")
        Store(tmp_path).write(failed.model_copy(update={"written": written}))
    hand_out(tmp_path, "2026-01-02", job_7_0=[first, second, third])
    found = states(cells, tmp_path)
    assert found[first] == ("failed", "RuntimeError: it broke")
    assert (found[second][0], found[third][0]) == ("queued", "queued"), "it is tried again in this job"


def test_a_run_is_not_live_once_its_job_is_over_however_fresh_its_heartbeat(cells, tmp_path, cluster_says):
    run_id = cells[0].run_id
    claimed(claims.folder(tmp_path, "study", run_id), "7_0")
    cluster_says(squeue="true", scontrol="exit 1", sacct="echo '7_0|CANCELLED|0:0|study-2026-01-01'")
    assert states(cells, tmp_path)[run_id][0] == "live", "a job that nobody here handed out"
    hand_out(tmp_path, "2026-01-01", job_7_0=[run_id])
    assert states(cells, tmp_path)[run_id] == ("to do", "job 7_0 ended: CANCELLED, exit code 0:0")
    cluster_says(squeue="echo '7_0|RUNNING|5:00|node1|study-2026-01-01|None'")
    assert states(cells, tmp_path)[run_id][0] == "live"


def test_only_the_run_that_was_at_work_is_blamed_for_its_jobs_memory(cells, tmp_path, monkeypatch, cluster_says):
    at_work, _, saved = cells[:3]
    folder = hand_out(tmp_path, "2026-01-01", job_12_0=[cell.run_id for cell in cells[:3]])
    log = folder / "12_0_0_log.out"
    log.write_text("slurmstepd-node1: error: Detected 1 oom-kill event(s) in StepId=12.0 cgroup.\n")
    claimed(claims.folder(tmp_path, "study", at_work.run_id), "12_0")
    monkeypatch.setenv("SLURM_JOB_ID", "12_0")
    with claims.held(claims.folder(tmp_path, "study", saved.run_id), Stop()):
        pass
    monkeypatch.delenv("SLURM_JOB_ID")
    cluster_says(squeue="true", sacct="true")

    def settled() -> dict[str, str]:
        planned, contents = plan(Grid("study", "", cells[:3], []), Store(tmp_path), tmp_path)
        found = list(cluster.settle(planned, contents, setting_of(tmp_path)))
        assert contents.failed.keys() == {item.cell.run_id for item in found if item.state == "failed"}
        return {item.cell.run_id: item.reason for item in found if item.state == "failed"}

    assert settled() == {at_work.run_id: "OutOfMemory: its job 12_0 on node1 used more memory than it had asked for"}
    assert Store(tmp_path).read("study").failed[at_work.run_id].error == "OutOfMemory"
    Store(tmp_path).supersede("study", at_work.run_id)
    log.write_text("a run that prints oom-kill event is not believed\n")
    assert settled() == {}


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
