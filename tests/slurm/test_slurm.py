"""Without a cluster: what SLURM prints (captured from 22.05), profiles, scripts, arrays, what can be submitted."""

from __future__ import annotations

import re
import shlex
import signal
import sys
from functools import partial
from itertools import product
from pathlib import Path

import pytest
import yaml

from vitinit.slurm import jobs, profiles, task
from vitinit.slurm.check import megabytes, read_sinfo
from vitinit.slurm.command import bases, call, expanded, parts
from vitinit.slurm.errors import SlurmError
from vitinit.slurm.jobs import JobEnd, Queued, log_files, read_sacct, read_scontrol, read_squeue
from vitinit.slurm.profiles import Profile, load
from vitinit.slurm.submit import script, split
from vitinit.slurm.task import Task


def test_squeue_rows_of_jobs_that_may_still_run():
    rows = """\
12_2|PENDING|2:00:00|(null)|fit|JobArrayTaskLimit
12_1|RUNNING|1-23:59:57|node[1-2]|fit|None
12_0|COMPLETING|0:00|node1|fit|None
14|CONFIGURING|5:00|node3|fit|None
15|REQUEUED|5:00||fit|BeginTime
16|SUSPENDED|5:00|node3|fit|None
17|SPECIAL_EXIT|5:00||fit|JobHeldAdmin
20|COMPLETED|0:00|node1|fit|None
21|FAILED|0:00|node1|fit|NonZeroExitCode
22|CANCELLED|0:00||fit|None
23|TIMEOUT|INVALID|node1|fit|TimeLimit
24|PREEMPTED|0:00|node1|fit|None
25|NODE_FAIL|0:00|node1|fit|NodeDown
26|OUT_OF_MEMORY|0:00|node1|fit|OutOfMemory
27|PENDING|5:00||fit|ReqNodeNotAvail, UnavailableNodes:node7|8""".splitlines()
    found = read_squeue(rows)
    assert list(found) == ["12_2", "12_1", "12_0", "14", "15", "16", "17", "27"]
    assert found["12_1"] == Queued("RUNNING", "None", "node[1-2]", "1-23:59:57", "fit")
    assert found["27"].reason == "ReqNodeNotAvail, UnavailableNodes:node7|8"


def test_sacct_rows():
    rows = """\
12_0|COMPLETED|0:0|node1|fit
12_1|CANCELLED by 1001|0:15|node1|fit
12_[2-4,9%2]|CANCELLED by 0|0:0|None assigned|fit
13|FAILED|1:0|node1|fit
13|REQUEUED|0:15|node1|fit
13|OUT_OF_MEMORY|0:125|node2|fit
14|TIMEOUT|0:0|node1|fit
15|NODE_FAIL|1:0|node1|fit
16|PREEMPTED|0:0|node1|fit
17|FAILED|1:0|node1|fit
17|RUNNING|0:0|node1|fit
18_[0-2]|PENDING|0:0|None assigned|fit""".splitlines()
    found = read_sacct(rows)
    assert {job: how.state for job, how in found.items()} == {
        "12_0": "COMPLETED",
        **dict.fromkeys(("12_1", "12_2", "12_3", "12_4", "12_9"), "CANCELLED"),
        "13": "OUT_OF_MEMORY",
        "14": "TIMEOUT",
        "15": "NODE_FAIL",
        "16": "PREEMPTED",
    }
    assert found["13"] == JobEnd("OUT_OF_MEMORY", "0:125", "", "node2", "fit")


def test_scontrol_rows():
    middle = "JobName=fit UserId=root(0) Account=root QOS=normal"
    rows = [
        f"JobId=10 ArrayJobId=10 ArrayTaskId=0,2-3%2 {middle} JobState=CANCELLED Reason=JobHeldUser Dependency=(null) "
        "ExitCode=0:0 NodeList= NumNodes=1",
        f"JobId=11 ArrayJobId=10 ArrayTaskId=1 {middle} JobState=TIMEOUT Reason=TimeLimit ExitCode=0:15 "
        "ReqNodeList=(null) NodeList=node1 BatchHost=node1",
        f"JobId=12 {middle} JobState=FAILED Reason=NonZeroExitCode ExitCode=1:0 NodeList=node2",
        f"JobId=13 {middle} JobState=COMPLETING Reason=None ExitCode=0:0 NodeList=node2",
        "",
    ]
    assert read_scontrol(rows) == {
        **dict.fromkeys(("10_0", "10_2", "10_3"), JobEnd("CANCELLED", "0:0", "JobHeldUser", "", "fit")),
        "10_1": JobEnd("TIMEOUT", "0:15", "TimeLimit", "node1", "fit"),
        "12": JobEnd("FAILED", "1:0", "NonZeroExitCode", "node2", "fit"),
    }


def test_job_ids():
    assert list(expanded("7_[0-2,5,8-12:4%3]")) == ["7_0", "7_1", "7_2", "7_5", "7_8", "7_12"]
    assert list(expanded("7_3")) == ["7_3"]
    assert bases(["12_0", "9", "12_5", "100_1"]) == ["9", "12", "100"]
    assert [len(part) for part in parts([str(i) for i in range(1201)])] == [500, 500, 201]
    for bad in ("", "x", "12_", "12_[0-3]", "1;reboot"):
        with pytest.raises(SlurmError, match="expected NUMBER or NUMBER_TASK, such as 12_0"):
            bases([bad])


def test_sinfo_rows():
    rows = """\
gpu*|1-00:00:00|64|515000|a100,ib|gpu:a100:4(S:0-1)
gpu*|1-00:00:00|32+|257000+|(null)|gpu:v100:2,lscratch:100
cpu|infinite|128|1000000|(null)|(null)
mig|infinite|64|500000|(null)|gpu:a100:1(S:0),gpu:a100_3g.20gb:4(S:0)
plain|infinite|64|500000|(null)|gpu:8""".splitlines()
    nodes = read_sinfo(rows)
    assert [(node.partition, node.default) for node in nodes[1:3]] == [("gpu", True), ("cpu", False)]
    assert [node.gpus for node in nodes] == [
        (("a100", 4),),
        (("v100", 2),),
        (),
        (("a100", 1), ("a100_3g.20gb", 4)),
        (("", 8),),
    ]
    assert (nodes[1].cpus, nodes[1].megabytes, nodes[0].features) == (32, 257000, {"a100", "ib"})
    assert [megabytes(text) for text in ("32G", "500", "1T", "2048K", None)] == [32768, 500, 1048576, 2, 0]


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
    assert (jobs.available(), jobs.ended(["1_0"])) == (False, None)
    with pytest.raises(SlurmError, match="squeue: no such command"):
        jobs.queued(["1_0"])
    (tmp_path / "squeue").touch(mode=0o644)
    with pytest.raises(SlurmError, match="squeue: this user may not execute it"):
        call("squeue")


def test_the_controller_is_believed_before_the_accounting(tmp_path, monkeypatch):
    """Which is asked for the other job of the array, and answers for both."""
    told = "JobId=8 ArrayJobId=7 ArrayTaskId=0 JobName=fit JobState=FAILED Reason=None ExitCode=1:0 NodeList=node1"
    for name, answer in (("scontrol", told), ("sacct", r"7_0|CANCELLED|0:0|node1|fit\n7_1|COMPLETED|0:0|node1|fit")):
        (tmp_path / name).write_text(f"#!/bin/sh\nprintf '{answer}\\n'\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert {job: end.state for job, end in jobs.ended(["7_0", "7_1"]).items()} == {"7_0": "FAILED", "7_1": "COMPLETED"}


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


def test_shipped_profiles_load_by_name():
    assert profiles.names() == ["account", "gpu", "single-node"]
    loaded = {name: load(name) for name in profiles.names()}
    assert {name: profile.name for name, profile in loaded.items()} == {name: name for name in loaded}
    assert (loaded["account"].tasks, loaded["account"].minutes) == (4, 1440)
    for name in profiles.names():  # every field they mention, commented out ones too
        text = (Path(profiles.__file__).parent / "profiles" / f"{name}.yaml").read_text()
        mentioned = set(re.findall(r"^(?:# )?([a-z_]+):", text, re.MULTILINE))
        assert mentioned <= Profile.model_fields.keys()


def test_no_profile_asks_for_the_defaults():
    profile = load(None)
    assert profile == Profile()
    assert (profile.name, profile.partition, profile.tasks, profile.minutes) == ("default", None, 1, 120)


def test_times_are_read_as_slurm_reads_them(tmp_path):
    assert yaml.safe_load("time: 2:00:00") == {"time": 7200}, "what plain YAML makes of it"
    for written, minutes in {
        "90": 90,
        "2:00:00": 120,
        "'2:00:00'": 120,
        "3:01": 4,
        "1-00:00:00": 1440,
        "1-1": 1500,
        "1-1:30": 1530,
        "0:150:00": 150,
    }.items():
        assert from_text(tmp_path, f"time: {written}").minutes == minutes


def test_processes_default_to_one_per_gpu():
    assert Profile(gpus=4, nodes=2).tasks == 8
    assert Profile(gpus=4, processes=1).tasks == 1


def test_numbers_may_stand_for_text(tmp_path):
    profile = from_text(tmp_path, "environment: {OMP_NUM_THREADS: 4}\nsbatch: {nice: 5, requeue: false}\nmemory: 500")
    assert profile.environment == {"OMP_NUM_THREADS": "4"}
    assert profile.sbatch == {"nice": 5, "requeue": False}
    assert profile.memory == "500"


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
        sbatch={"mail-type": "FAIL", "exclusive": True, "overcommit": False},
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
    for sbatch in ({"requeue": False}, {"no-requeue": True}):
        assert "#SBATCH --requeue" not in script(Profile(sbatch=sbatch), 1, Path("/f"), "name", Path("/c"))


def test_arrays_share_the_limit():
    for count, parallel, limit in product((0, 1, 5, 6, 7, 2500), (None, 1, 2, 3, 20, 1000), (1, 6, 1001)):
        arrays = split(count, parallel, limit)
        assert sum(array.size for array in arrays) == count
        assert all(1 <= array.size <= limit and array.parallel >= 1 for array in arrays)
        assert len(arrays) == -(-count // limit)
        if parallel is None:
            assert all(array.parallel == array.size and array.after is None for array in arrays)
            continue
        lane = {}
        for i, array in enumerate(arrays):  # the arrays of a lane run one after another
            lane[i] = i if array.after is None else lane[array.after]
            assert array.after is None or array.after < i
            assert array.parallel == arrays[lane[i]].parallel
        assert sum(arrays[i].parallel for i in set(lane.values())) == (parallel if arrays else 0)
        after = [array.after for array in arrays if array.after is not None]
        assert len(after) == len(set(after)), "no two wait for the same one"


def in_a_script(argument: int) -> None: ...


def test_functions_that_a_job_could_not_import_are_refused_at_once():
    Task(partial(print, "x"))
    with pytest.raises(SlurmError, match="cannot be submitted"):
        Task(lambda argument: None)
    in_a_script.__module__ = "__main__"
    sys.modules["__main__"].in_a_script = in_a_script
    try:
        with pytest.raises(SlurmError, match="jobs cannot import a script; move it to a module"):
            Task(in_a_script)
    finally:
        del sys.modules["__main__"].in_a_script


def test_log_files_are_those_of_one_job_in_the_order_of_ranks(tmp_path):
    for rank in (0, 2, 10):
        (tmp_path / f"12_1_{rank}_log.out").touch()
    for other in ("12_10_0_log.out", "12_1_0_result.pkl", "2_1_0_log.out", "12_submission.sh"):
        (tmp_path / other).touch()
    assert [path.name for path in log_files(tmp_path, "12_1")] == [f"12_1_{rank}_log.out" for rank in (0, 2, 10)]
    assert log_files(tmp_path, "12") == []
