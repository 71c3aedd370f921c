"""Handing runs to a cluster, as far as it needs none: sharing out, estimating, remembering, the copy of the code."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from benchmark.grids import grid
from benchmark.grids.schema import Cell, Grid
from benchmark.records.store import Store
from runners.basics import environment
from runners.basics.setting import Execution, Setting
from runners.basics.stop import Stop
from runners.launching import cluster, jobs, snapshot
from runners.launching.estimate import estimate
from runners.launching.plan import plan
from runners.one_run import claims
from runners.one_run.outcome import failure
from slurm.profiles import Profile
from tests.processes import FORKS, PATIENCE, fresh, until
from tests.runners import job

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


def test_the_time_of_runs_like_these_is_what_records_say_and_twice_the_epochs_take_twice_of_it(tmp_path):
    (tmp_path / "small").symlink_to(REFERENCE / "small")
    small = grid.load("small").cells
    longer = small[0].spec.recipe.model_copy(update={"epochs": 2 * small[0].spec.recipe.epochs})
    twice = Cell(small[0].row, small[0].spec.model_copy(update={"recipe": longer}))
    measured = estimate([*small, twice], [Path("nowhere"), tmp_path], "cpu")
    assert measured.seconds.keys() == {cell.run_id for cell in (*small, twice)}
    assert measured.seconds[twice.run_id] == pytest.approx(2 * measured.seconds[small[0].run_id])
    records = Store(tmp_path).read("small").done.values()
    for cell in small:  # every kind has three seeds in the reference records
        alike = [r.seconds for r in records if (r.row, r.spec.dataset) == (cell.row, cell.spec.dataset)]
        # rows of one model and recipe count together, however they are initialised
        assert 0.3 * min(alike) < measured.seconds[cell.run_id] < 3 * max(alike)
    assert measured.measured_on == (next(iter(records)).environment["processor"],)
    assert estimate(small, [tmp_path], "cuda").seconds == {}
    assert estimate(grid.load("table2").cells, [tmp_path], "cpu").seconds == {}


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
    assert jobs.look(tmp_path, "other") == jobs.Look()


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
    assert environment.source_hash(copy) == environment.source_hash()
    script = (
        "import runners.launching.cluster, slurm, benchmark; print(runners.launching.cluster.__file__, slurm.__file__)"
    )
    done = fresh("-c", script, cwd=copy, path=(copy,))
    assert done.stdout.split() == [f"{copy}/runners/launching/cluster.py", f"{copy}/slurm/__init__.py"], done.stderr


def test_a_damaged_copy_of_the_code_is_put_aside_and_made_anew(tmp_path):
    copy, asides = snapshot.take(tmp_path / "code"), []
    for damage in ("gone", "edited", "more"):
        file = copy / "runners" / ("more.py" if damage == "more" else "__init__.py")
        if damage == "gone":
            file.unlink()
        else:
            file.write_text("x = 1\n")
        assert snapshot.take(tmp_path / "code") == copy
        assert environment.source_hash(copy) == environment.source_hash()
        (aside,) = (path for path in (tmp_path / "code").iterdir() if path not in (copy, *asides))
        assert aside.name.startswith(f"{copy.name}.damaged-")
        assert (aside / "runners/__init__.py").exists() == (damage != "gone"), "nothing is deleted"
        asides.append(aside)


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


@pytest.mark.parametrize(
    ("restart", "job", "free"), [("1", "12_3", True), ("0", "12_3", False), ("1", "12_4", False), (None, None, False)]
)
def test_a_requeued_job_takes_over_its_own_claim_at_once(tmp_path, monkeypatch, restart, job, free):
    """Of its own job the cluster has ended what ran before, on whatever node; nobody else may take it so soon."""
    for name, value in (("SLURM_ARRAY_JOB_ID", "12"), ("SLURM_ARRAY_TASK_ID", "3")):
        monkeypatch.setenv(name, value)
    with claims.held(tmp_path, Stop()) as claim:
        elsewhere = claim.owner.model_copy(update={"machine": "another node"})
        claim.path.write_text(elsewhere.model_dump_json())
    assert elsewhere.job == "12_3"
    claim.path.write_text(elsewhere.model_dump_json())
    for name in ("SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID", "SLURM_RESTART_COUNT"):
        monkeypatch.delenv(name, raising=False)
    if job:
        monkeypatch.setenv("SLURM_ARRAY_JOB_ID", job.partition("_")[0])
        monkeypatch.setenv("SLURM_ARRAY_TASK_ID", job.partition("_")[2])
    if restart:
        monkeypatch.setenv("SLURM_RESTART_COUNT", restart)
    assert (claims.live(tmp_path) is None) == free


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
    cluster.settle([at_work, waiting, saved], setting, handed)
    failed = Store(tmp_path).read("smoke").failed
    assert failed.keys() == {at_work.run_id}
    assert failed[at_work.run_id].error == "OutOfMemory"
    log.write_text("a run that prints oom-kill event is not believed\n")
    Store(tmp_path).supersede("smoke", at_work.run_id)
    cluster.settle([at_work], setting, handed)
    assert Store(tmp_path).read("smoke").failed == {}


def test_what_failed_before_the_job_is_not_recorded_twice(cells, tmp_path):
    setting = Setting(tmp_path, "smoke", tmp_path, Execution("cpu", 1, "slurm"), {})
    before = failure(cells[0], setting, "RuntimeError", "before")
    Store(tmp_path).write(before)
    cluster._record_failures(cluster.Pack(tuple(cells[:2]), setting, 1, ""), cells[:2], "OSError", "no such folder")
    failed = Store(tmp_path).read("smoke").failed
    assert failed[cells[0].run_id].message == "before"
    assert failed[cells[1].run_id].message == "no such folder"


@pytest.mark.parametrize(
    ("number", "how", "preempted", "requeued", "failures"),
    [
        ("SIGUSR2", "trained", False, True, []),
        ("SIGUSR2", "slow", False, False, ["OutOfTime"]),
        ("SIGTERM", "slow", True, True, []),
    ],
)
def test_a_job_that_is_told_to_stop(tmp_path, cluster_says, number, how, preempted, requeued, failures):
    """Out of time it comes back if it got on, else its run has failed; preempted it comes back always."""
    time_ = "2026-01-01T00:00:00" if preempted else "None"
    cluster_says(scontrol=f'echo "$@" >> {tmp_path}/asked; echo "JobId=7 JobState=RUNNING PreemptTime={time_} "')
    process = FORKS.Process(target=job.carried_out, args=(tmp_path, how == "slow", os.environ["PATH"]))
    process.start()
    try:
        study = tmp_path / "smoke"
        sign = "unfinished/*/step-0*.ckpt" if how == "trained" else "unfinished/*/claim-*.json"
        until(lambda: len(list(study.glob(sign))) >= (2 if how == "trained" else 1), sign, process)
        os.kill(process.pid, getattr(signal, number))
        process.join(PATIENCE)
        assert process.exitcode == (0 if requeued else 1)
    finally:
        process.kill()
    assert ("requeue 7" in (tmp_path / "asked").read_text()) == requeued
    contents = Store(tmp_path).read("smoke")
    assert contents.done == {}
    assert [failed.error for failed in contents.failed.values()] == failures
    assert (len(list(study.glob("unfinished/*/step-*.ckpt"))) == 2) == (how == "trained")
