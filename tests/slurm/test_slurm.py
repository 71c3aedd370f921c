"""Without a cluster: what SLURM prints (captured from 22.05), profiles, scripts, arrays, what can be submitted."""

from __future__ import annotations

import shlex
import signal
import sys
from pathlib import Path

import pytest

from vitinit.slurm import jobs, profiles, task
from vitinit.slurm.errors import SlurmError
from vitinit.slurm.jobs import JobEnd, Queued, log_files, read_sacct, read_squeue
from vitinit.slurm.profiles import Profile, load
from vitinit.slurm.submit import script


def test_squeue_rows_of_jobs_that_may_still_run():
    rows = """\
12_1|RUNNING|1-23:59:57|node[1-2]|fit|None
12_0|COMPLETING|0:00|node1|fit|None
15|REQUEUED|5:00||fit|BeginTime
20|COMPLETED|0:00|node1|fit|None
26|OUT_OF_MEMORY|0:00|node1|fit|OutOfMemory
27|PENDING|5:00||fit|ReqNodeNotAvail, UnavailableNodes:node7|8""".splitlines()
    found = read_squeue(rows)
    assert list(found) == ["12_1", "12_0", "15", "27"]
    assert found["12_1"] == Queued("RUNNING", "1-23:59:57", "node[1-2]", "fit", "None")
    assert found["27"].reason == "ReqNodeNotAvail, UnavailableNodes:node7|8"


def test_sacct_rows():
    rows = """\
12_0|COMPLETED|0:0|fit
12_1|CANCELLED by 1001|0:15|fit
13|FAILED|1:0|fit
13|REQUEUED|0:15|fit
13|OUT_OF_MEMORY|0:125|fit
17|FAILED|1:0|fit
17|RUNNING|0:0|fit""".splitlines()
    found = read_sacct(rows)
    states = {job: how.state for job, how in found.items()}
    assert states == {"12_0": "COMPLETED", "12_1": "CANCELLED", "13": "OUT_OF_MEMORY"}
    assert found["13"] == JobEnd("OUT_OF_MEMORY", "0:125", "fit")


def test_the_job_of_this_process(monkeypatch):
    for name in ("SLURM_JOB_ID", "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID"):
        monkeypatch.delenv(name, raising=False)
    assert jobs.current() is None
    with pytest.raises(SlurmError, match="this process runs in no job"):
        jobs.preempted_current()
    monkeypatch.setenv("SLURM_JOB_ID", "14")
    assert jobs.current() == "14"
    monkeypatch.setenv("SLURM_ARRAY_JOB_ID", "12")
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "0")
    assert jobs.current() == "12_0"


def test_a_command_that_is_absent_or_may_not_be_executed_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert (jobs.available(), jobs.ended(["1_0"])) == (False, {})
    with pytest.raises(SlurmError, match="squeue: No such file"):
        jobs.queued(["1_0"])
    (tmp_path / "squeue").touch(mode=0o644)
    with pytest.raises(SlurmError, match="squeue: Permission denied"):
        jobs.queued(["1_0"])


@pytest.mark.parametrize(("restarts", "code"), [("", 0), ("2", 0), ("3", 1)])
def test_a_job_whose_time_ends_before_it_has_begun_comes_back_three_times(restarts, code, monkeypatch):
    monkeypatch.delenv("SLURM_PROCID", raising=False)
    monkeypatch.setenv("SLURM_RESTART_COUNT", restarts)
    for name, answer in (("preempted_current", False), ("requeue_current", True)):
        monkeypatch.setattr(task, name, lambda answer=answer: answer)
    with pytest.raises(SystemExit) as end:
        task._leave(signal.SIGUSR2, None)
    assert end.value.code == code


# Profiles: what a file may say, and the sentence for what it may not.


def from_text(tmp_path, text: str) -> Profile:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    return load(str(path))


def test_every_value_of_a_profile_is_text_as_it_is_written(tmp_path):
    """YAML would make 83, 3.1, False and 7200 of these."""
    profile = from_text(
        tmp_path,
        """\
account: 0123
environment: {V: 3.10, WANDB_MODE: off, N: 08}
setup: module load cuda
memory: 64 GB
time: 2:00:00
gpus: 4
nodes: 2
sbatch: {nice: 5, exclusive: true, requeue: false, gres: "lscratch:100"}
qos:
""",
    )
    assert (profile.account, profile.memory, profile.minutes, profile.qos) == ("0123", "64G", 120, None)
    assert profile.environment == {"V": "3.10", "WANDB_MODE": "off", "N": "08"}
    assert (profile.setup, profile.tasks) == (("module load cuda",), 8)
    lines = script(profile, 1, Path("/f"), "name", Path("/c")).splitlines()
    assert {
        "#SBATCH --account=0123",
        "#SBATCH --exclusive",
        "#SBATCH --nice=5",
        "#SBATCH --gres=gpu:4,lscratch:100",
    } <= set(lines)
    assert "#SBATCH --requeue" not in lines
    for written, minutes in {"90": 90, "3:01": 4, "1-1:30": 1530, "0:150:00": 150}.items():
        assert from_text(tmp_path, f"time: {written}").minutes == minutes
    for option, asked in (("gpus", "--gpus=a100:8"), ("gpus-per-node", "--gpus-per-node=a100:4")):
        profile = Profile(gpus=4, nodes=2, gpu_type="a100", gpu_option=option)
        assert f"#SBATCH {asked}" in script(profile, 1, Path("/f"), "name", Path("/c"))


def test_the_shipped_profiles_load():
    assert [load(name).name for name in profiles.names()] == ["account", "gpu", "single-node"]


# What needs no cluster: the script, how arrays share a limit, what can be submitted, where logs are.


GOLDEN = Path(__file__).parent / "golden" / "script.sh"


def test_script_is_the_golden_one(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")  # no cluster
    profile = Profile(
        partition="gpu",
        account="lab",
        qos="long",
        constraint="a100|h100",
        nodes=2,
        gpus=4,
        gpu_type="a100",
        cpus=8,
        memory="64G",
        time="1-00:00:00",
        parallel=3,
        signal_seconds=300,
        setup=("module load cuda", "ulimit -n 4096"),
        environment={"WORDS": "two words"},
        sbatch={"mail-type": "FAIL", "exclusive": "true", "overcommit": "false"},
    )
    text = script(profile, 10, Path("/shared/my jobs"), "name", Path("/shared/code"))
    assert text.replace(shlex.quote(sys.executable), "PYTHON") == GOLDEN.read_text()


def test_defaults_ask_for_nothing_a_cluster_may_not_know_and_requeueing_can_be_turned_off():
    lines = script(Profile(), 1, Path("/f"), "name", Path("/c")).splitlines()
    options = {line.split()[1].partition("=")[0].strip("-") for line in lines if line.startswith("#SBATCH")}
    assert options == {
        *("cpus-per-task", "job-name", "nodes", "ntasks-per-node"),
        *("open-mode", "output", "requeue", "signal", "time"),
    }


def test_log_files_are_those_of_one_job_in_the_order_of_ranks(tmp_path):
    for rank in (0, 2, 10):
        (tmp_path / f"12_1_{rank}_log.out").touch()
    for other in ("12_10_0_log.out", "12_1_0_result.pkl", "2_1_0_log.out", "12_submission.sh"):
        (tmp_path / other).touch()
    assert [path.name for path in log_files(tmp_path, "12_1")] == [f"12_1_{rank}_log.out" for rank in (0, 2, 10)]
    assert log_files(tmp_path, "12") == []
