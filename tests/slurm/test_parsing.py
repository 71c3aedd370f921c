"""What SLURM's commands print, as captured from SLURM 22.05; rarer states after its manual."""

import pytest

from slurm import jobs
from slurm.check import megabytes, read_sinfo
from slurm.command import bases, call, expanded, parts
from slurm.errors import SlurmError
from slurm.jobs import Ended, Queued, read_sacct, read_scontrol, read_squeue


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
    assert found["13"] == Ended("OUT_OF_MEMORY", "0:125", "", "node2", "fit")


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
        **dict.fromkeys(("10_0", "10_2", "10_3"), Ended("CANCELLED", "0:0", "JobHeldUser", "", "fit")),
        "10_1": Ended("TIMEOUT", "0:15", "TimeLimit", "node1", "fit"),
        "12": Ended("FAILED", "1:0", "NonZeroExitCode", "node2", "fit"),
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
    with pytest.raises(SlurmError, match="squeue: no such command"):
        call("squeue")
    (tmp_path / "squeue").touch(mode=0o644)
    with pytest.raises(SlurmError, match="squeue: this user may not execute it"):
        call("squeue")
