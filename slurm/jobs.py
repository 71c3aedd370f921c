"""State and end of jobs: from squeue, scontrol and sacct, and from their logs."""

from __future__ import annotations

import os
import re
import shutil
import signal
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from vitinit.slurm.command import bases, call, expanded, parts, refusal
from vitinit.slurm.errors import SlurmError

ENDED = {
    "BOOT_FAIL",
    "CANCELLED",
    "COMPLETED",
    "DEADLINE",
    "FAILED",
    "LAUNCH_FAILED",
    "NODE_FAIL",
    "OUT_OF_MEMORY",
    "PREEMPTED",
    "RECONFIG_FAIL",
    "REVOKED",
    "TIMEOUT",
}
"""States from which a job does not come back; every other one may still run, or runs."""

_GONE = "Invalid job id specified"
_OVER = (_GONE, "already completing or completed", "already finished")


@dataclass(frozen=True)
class Queued:
    """A job that runs or may still run, in squeue's words."""

    state: str
    reason: str
    """Reason for waiting, such as Priority; None when there is none."""
    nodes: str
    time_left: str
    """DAYS-HOURS:MINUTES:SECONDS, or INVALID, UNLIMITED."""
    name: str
    """A cluster that was set up anew counts its jobs from 1 again: the name tells whether it is the same job."""


@dataclass(frozen=True)
class JobEnd:
    """End of a job."""

    state: str
    """Such as COMPLETED, FAILED, TIMEOUT, CANCELLED, OUT_OF_MEMORY, NODE_FAIL, PREEMPTED."""
    exit_code: str
    """STATUS:SIGNAL."""
    reason: str
    nodes: str
    name: str


def queued(job_ids: Collection[str]) -> dict[str, Queued]:
    """The jobs among these that run or may still run.

    Raises:
        SlurmError: the cluster does not answer, or a job id is not as squeue writes it.
    """
    found: dict[str, Queued] = {}
    for some in parts(bases(job_ids)):
        done = call(
            "squeue", "--noheader", "--array", "--all", "--jobs", ",".join(some), "--format", "%i|%T|%L|%N|%j|%r"
        )
        if done.returncode and _GONE not in done.stderr:
            raise refusal(done)
        found |= read_squeue(done.stdout.splitlines())
    return {job_id: found[job_id] for job_id in job_ids if job_id in found}


def read_squeue(lines: Iterable[str]) -> dict[str, Queued]:
    """The jobs of squeue's rows (id|state|time left|nodes|name|reason) that have not ended."""
    found = {}
    for line in lines:
        rows, state, time_left, nodes, name, reason = line.split("|", 5)
        if state not in ENDED:
            for job_id in expanded(rows):
                found[job_id] = Queued(state, reason, nodes, time_left, name)
    return found


def ended(job_ids: Collection[str]) -> dict[str, JobEnd] | None:
    """Return the ends of those jobs that are over; a job nobody remembers is left out.

    The controller remembers a job for some minutes; the accounting, where the cluster has one, for good, from some
    seconds after its end. None when neither can be asked. Jobs of an array that were cancelled one by one before they
    started are remembered by neither.
    """
    found: dict[str, JobEnd] = {}
    answered = False
    for base in bases(job_ids):
        done = _asked("scontrol", "--oneliner", "show", "job", base)
        answered |= done is not None
        found |= read_scontrol((done or "").splitlines())
    missing = [job_id for job_id in job_ids if job_id not in found]
    for some in parts(bases(missing)):
        fields = "JobID,State,ExitCode,NodeList,JobName"
        done = _asked(
            "sacct", "--noheader", "--parsable2", "--allocations", "--format", fields, "--jobs", ",".join(some)
        )
        answered |= done is not None
        found = read_sacct((done or "").splitlines()) | found
    return {job_id: found[job_id] for job_id in job_ids if job_id in found} if answered else None


def _asked(*command: str) -> str | None:
    """Return the output of a command; None when it cannot run."""
    try:
        done = call(*command)
    except SlurmError:
        return None
    return done.stdout if not done.returncode or _GONE in done.stderr else None


def read_scontrol(lines: Iterable[str]) -> dict[str, JobEnd]:
    """The jobs of `scontrol --oneliner show job` that have ended."""
    found = {}
    for line in lines:
        job = dict(re.findall(r"(\S+?)=(\S*)", line))
        if job.get("JobState") not in ENDED:
            continue
        array, tasks = job.get("ArrayJobId"), job.get("ArrayTaskId", "")
        rows = job["JobId"] if array is None else f"{array}_{tasks}" if tasks.isdigit() else f"{array}_[{tasks}]"
        for job_id in expanded(rows):
            found[job_id] = JobEnd(
                job["JobState"], job["ExitCode"], job["Reason"], job.get("NodeList", ""), job["JobName"]
            )
    return found


def read_sacct(lines: Iterable[str]) -> dict[str, JobEnd]:
    """The jobs of sacct's rows (id|state|exit code|nodes|name) that have ended; the last row of a job counts."""
    found: dict[str, JobEnd] = {}
    for line in lines:
        rows, state, exit_code, nodes, name = line.split("|", 4)
        state = state.split()[0].rstrip("+")
        for job_id in expanded(rows):
            found.pop(job_id, None)
            if state in ENDED:
                found[job_id] = JobEnd(state, exit_code, "", nodes, name)
    return found


def cancel(job_ids: Collection[str]) -> None:
    """Cancel these jobs; those that are over already are left alone.

    Raises:
        SlurmError: the cluster does not answer, or does not allow it.
    """
    bases(job_ids)
    for some in parts(sorted(job_ids)):
        done = call("scancel", *some)
        bad = [line for line in done.stderr.splitlines() if not any(words in line for words in _OVER)]
        if done.returncode and bad:
            raise refusal(done)


def available() -> bool:
    """Return True where jobs can be submitted: sbatch exists, and the controller answers within seconds."""
    if shutil.which("sbatch") is None:
        return False
    try:
        return " is UP" in call("scontrol", "ping", timeout=10).stdout
    except SlurmError:
        return False


def current() -> str | None:
    """The job this process runs in, as squeue writes it; None outside of a job."""
    array, task = os.environ.get("SLURM_ARRAY_JOB_ID"), os.environ.get("SLURM_ARRAY_TASK_ID")
    return f"{array}_{task}" if array and task else os.environ.get("SLURM_JOB_ID")


def requeue_current(any_rank: bool = False) -> bool:
    """Have the job this process runs in start again later, from its beginning, if it still counts as running.

    SLURM then kills the job: save first. A job that is ending, because somebody cancelled it or SLURM requeues it
    already, is left alone: `scontrol requeue` would bring back what was cancelled. Of a job's processes rank 0 asks.

    Args:
        any_rank: ask from whichever process this is; the first one of a job that asks requeues it.

    Returns:
        Whether this call requeued it.

    Raises:
        SlurmError: this process runs in no job, or the cluster does not answer or allow it.
    """
    other = os.environ.get("SLURM_PROCID", "0") != "0" and not any_rank
    if other or " JobState=RUNNING " not in _shown():
        return False
    done = call("scontrol", "requeue", _required())
    if not done.returncode:
        return True
    if f" Restarts={restarts() + 1} " in _shown():  # what ends a requeued job may end the question before its answer
        return True
    if done.returncode == -signal.SIGTERM:
        return False
    raise refusal(done)


def preempted_current() -> bool:
    """Return True where SLURM is about to preempt the job this process runs in.

    What SIGTERM means is not clear otherwise: a preemption, or that another process of the job has failed.

    Raises:
        SlurmError: this process runs in no job, or the cluster does not answer.
    """
    shown = _shown()
    return " JobState=RUNNING " in shown and re.search(r" PreemptTime=[0-9]", shown) is not None


def _shown() -> str:
    """Return the output of `scontrol show job` for the job this process runs in."""
    done = call("scontrol", "--oneliner", "show", "job", _required())
    if done.returncode:
        raise refusal(done)
    return done.stdout


def _required() -> str:
    """Not SLURM_JOB_ID: that of an array's last job is the array's own, and means all of its jobs."""
    job_id = current()
    if job_id is None:
        raise SlurmError("this process runs in no job of SLURM")
    return job_id


def restarts() -> int:
    """Return the number of requeues of the job this process runs in; 0 outside of a job."""
    return int(os.environ.get("SLURM_RESTART_COUNT") or 0)


def log_files(folder: Path, job_id: str) -> list[Path]:
    """The logs of a job, one per process in the order of ranks. A requeued job goes on in the same files."""
    found = {}
    for path in folder.glob(f"{job_id}_*_log.out"):
        if rank := re.fullmatch(rf"{re.escape(job_id)}_(\d+)_log\.out", path.name):
            found[int(rank[1])] = path
    return [found[rank] for rank in sorted(found)]
