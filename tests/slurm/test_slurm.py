"""Without a cluster: what SLURM prints (captured from 22.05), profiles, scripts, logs."""

import pickle
import signal
from hashlib import sha256
from pathlib import Path

import pytest

from vitinit.slurm import jobs, profiles, submit
from vitinit.slurm.jobs import JobEnd, Queued, SlurmError
from vitinit.slurm.profiles import Profile, load

SQUEUE = """\
12_1|RUNNING|node[1-2]|fit|None
12_0|COMPLETING|node1|fit|None
15|REQUEUED||fit|BeginTime
20|COMPLETED|node1|fit|None
26|OUT_OF_MEMORY|node1|fit|OutOfMemory
27|PENDING||fit|ReqNodeNotAvail, UnavailableNodes:node7|8
99|RUNNING||other|None"""
SACCT = """\
12_0|COMPLETED|0:0|fit
12_1|CANCELLED by 1001|0:15|fit
13|FAILED|1:0|fit
13|REQUEUED|0:15|fit
13|OUT_OF_MEMORY|0:125|fit
17|FAILED|1:0|fit
17|RUNNING|0:0|fit"""


def test_what_squeue_and_sacct_say_of_jobs(tmp_path, cluster_says, monkeypatch):
    monkeypatch.setenv("SLURM_CLUSTERS", "fit")  # squeue names it in a line of its own
    cluster_says(
        squeue=f"echo \"$@\" > {tmp_path}/asked\n[ -z $SLURM_CLUSTERS ] || echo CLUSTER\ncat <<'END'\n{SQUEUE}\nEND",
        sacct=f"cat <<'END'\n{SACCT}\nEND",
    )
    waiting = jobs.queued(["fit", "more"])
    assert list(waiting) == ["12_1", "12_0", "15", "27"]
    assert waiting["12_1"] == Queued("RUNNING", "node[1-2]", "fit", "None")
    assert waiting["27"].reason == "ReqNodeNotAvail, UnavailableNodes:node7|8"
    assert "--name fit,more --format" in (tmp_path / "asked").read_text()
    ended = jobs.ended(["12_0", "12_1", "13", "17"])
    states = {job: how.state for job, how in ended.items()}
    assert states == {"12_0": "COMPLETED", "12_1": "CANCELLED", "13": "OUT_OF_MEMORY"}
    assert ended["13"] == JobEnd("OUT_OF_MEMORY", "0:125", "fit")


def test_the_job_of_this_process(monkeypatch, cluster_says):
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
    cluster_says(scontrol='case $1 in requeue) kill -TERM $$;; esac; echo "JobId=12 JobState=RUNNING "')
    assert not jobs.requeue_current(), "it is ending, and its end ends the question"


def test_a_command_that_is_absent_or_may_not_be_executed_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert (jobs.available(), jobs.ended(["1_0"])) == (False, {})
    with pytest.raises(SlurmError, match="scontrol: No such file"):
        submit.max_array_size()
    (tmp_path / "squeue").touch(mode=0o644)
    with pytest.raises(SlurmError, match="squeue: Permission denied"):
        jobs.queued(["1_0"])


class Slow:
    """A function whose import takes so long that the signal comes before its end."""

    def __reduce__(self):
        return signal.raise_signal, (signal.SIGUSR2,)


@pytest.mark.parametrize(("restarts", "code"), [("", 0), ("2", 0), ("3", 1)])
def test_a_job_whose_time_ends_before_it_has_begun_comes_back_three_times(restarts, code, monkeypatch, tmp_path):
    monkeypatch.delenv("SLURM_PROCID", raising=False)
    monkeypatch.setenv("SLURM_RESTART_COUNT", restarts)
    for name, answer in (("preempted_current", False), ("requeue_current", True)):
        monkeypatch.setattr(submit, name, lambda answer=answer: answer)
    call = tmp_path / "call"
    call.write_bytes(pickle.dumps((Slow(), 0)))
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGUSR2, signal.SIGTERM)}
    with pytest.raises(SystemExit) as end:
        submit.main(str(call), sha256(call.read_bytes()).hexdigest())
    with pytest.raises(SystemExit, match="is not what was submitted"):
        submit.main(str(call), "0" * 64)
    for number, handler in before.items():
        signal.signal(number, handler)
    assert end.value.code == code


def test_every_value_of_a_profile_is_text_as_it_is_written(tmp_path):
    """YAML would make 83, 3.1, False and 7200 of these."""

    def from_text(text):
        path = tmp_path / "mine.yaml"
        path.write_text(text)
        return load(str(path))

    profile = from_text("""\
account: 0123
environment: {V: 3.10, WANDB_MODE: off, N: 08}
setup: module load cuda
memory: 64 GB
time: 2:00:00
gpus: 4
nodes: 2
sbatch: {nice: 5, exclusive: True, requeue: False, gres: "lscratch:100"}
qos:
""")
    assert (profile.account, profile.memory, profile.time, profile.qos) == ("0123", "64G", "2:00:00", None)
    assert profile.environment == {"V": "3.10", "WANDB_MODE": "off", "N": "08"}
    assert (profile.setup, profile.tasks) == (("module load cuda",), 8)
    lines = submit.script(profile, 1, Path("/f"), "name").splitlines()
    asked = {"account=0123", "exclusive", "nice=5", "gres=gpu:4,lscratch:100"}
    assert {f"#SBATCH --{each}" for each in asked} <= set(lines)
    assert "#SBATCH --requeue" not in lines
    assert "#SBATCH --no-requeue" in lines, "the default of a cluster may be to requeue"
    for written, limit in {"90": 5400, "3:01": 181, "1-1:30": 91800, "0:150:00": 9000, "2-0": 172800}.items():
        assert profiles.seconds(from_text(f"time: {written}").time) == limit
    for option, asked in (("gpus", "--gpus=a100:8"), ("gpus-per-node", "--gpus-per-node=a100:4")):
        profile = Profile(gpus=4, nodes=2, gpu_type="a100", gpu_option=option)
        assert f"#SBATCH {asked}" in submit.script(profile, 1, Path("/f"), "name")
    assert [load(name).name for name in profiles.names()] == ["account", "gpu", "single-node"]


def test_a_profile_wins_over_variables_of_the_shell_and_these_stand_for_what_it_leaves_out(
    tmp_path, cluster_says, monkeypatch
):
    cluster_says(sbatch=f"env > {tmp_path}/told; echo 'sbatch: error: no' >&2; exit 1")
    for name in ("PARTITION", "QOS", "ACCOUNT", "GRES", "TIMELIMIT"):
        monkeypatch.setenv(f"SBATCH_{name}", "of-the-shell")
    profile = Profile(partition="gpu", qos="long")
    with pytest.raises(SlurmError, match="^sbatch: error: no$"):
        submit.submit(print, 0, 1, profile, tmp_path, "name")
    assert (tmp_path / "submission.sh").stat().st_mode & 0o77 == 0
    heeded = [line for line in (tmp_path / "told").read_text().splitlines() if line.startswith("SBATCH_")]
    assert heeded == ["SBATCH_ACCOUNT=of-the-shell"]
    assert submit.ignored_variables(profile) == [f"SBATCH_{name}" for name in ("GRES", "PARTITION", "QOS", "TIMELIMIT")]
