"""Jobs by SLURM's commands: those that wait or run, those that have ended, and this one."""

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import NamedTuple

from vitinit.initializers.errors import VitinitError

TIMEOUT_S = 60.0
"""Seconds that SLURM's commands have to answer; a controller that is down makes them try for about that long."""

ENDED = (
    "BOOT_FAIL CANCELLED COMPLETED DEADLINE FAILED LAUNCH_FAILED NODE_FAIL OUT_OF_MEMORY PREEMPTED RECONFIG_FAIL "
    "REVOKED TIMEOUT"
)
"""States from which a job does not come back; every other one may still run, or runs."""

_FILTERS = "SQUEUE_", "SACCT_", "SINFO_", "SCANCEL_", "SLURM_CLUSTERS"
"""Variables with which a user changes what these commands show by default."""
OVER = "Invalid job id specified", "already completing or completed", "already finished"
"""Complaints of scancel about jobs that have ended."""

SCRIPT = "submission.sh"
"""Name of the script of a submission, in its folder."""
TRIES = 5
"""Number of attempts to reach the controller before a job gives up."""
MOST_RESTARTS = 3
"""A job that has been started again so often is not requeued for a broken GPU: it meets the same node each time."""


class SlurmError(VitinitError):
    """The cluster does not answer, or refuses what it was asked."""


class Queued(NamedTuple):
    """A job that runs or may still run, in squeue's words."""

    state: str
    nodes: str
    name: str
    """A cluster that was set up anew counts its jobs from 1 again: the name tells whether it is the same job."""
    reason: str
    """Reason for waiting, such as Priority; None when there is none."""


class JobEnd(NamedTuple):
    """End of a job."""

    state: str
    """Such as COMPLETED, FAILED, TIMEOUT, CANCELLED, OUT_OF_MEMORY, NODE_FAIL, PREEMPTED."""
    exit_code: str
    """STATUS:SIGNAL."""
    name: str


def call(
    *command: str, timeout: float = TIMEOUT_S, environment: Mapping[str, str] = os.environ
) -> subprocess.CompletedProcess[str]:
    """Run a command of SLURM whose output is to be parsed; its exit status is for the caller to judge.

    Raises:
        SlurmError: no such command here, none that this user may execute, or no answer within `timeout` seconds.
    """
    env = {key: value for key, value in environment.items() if not key.startswith(_FILTERS)} | {"LC_ALL": "C"}
    try:
        return subprocess.run(command, env=env, capture_output=True, text=True, errors="replace", timeout=timeout)
    except OSError as error:
        raise SlurmError(f"{command[0]}: {error.strerror}; this machine has no SLURM that it could call") from error
    except subprocess.TimeoutExpired as error:
        raise SlurmError(f"{command[0]} did not answer within {timeout:.0f} s; is the cluster up?") from error


def refusal(done: subprocess.CompletedProcess[str]) -> SlurmError:
    """The error for a command that failed: its own words."""
    words = done.stderr.strip() or done.stdout.strip() or f"exit status {done.returncode}"
    return SlurmError(f"{done.args[0]}: {words}")


def queued(names: Collection[str]) -> dict[str, Queued]:
    """Return the jobs of these names that run or may still run, by id.

    Raises:
        SlurmError: the cluster does not answer.
    """
    if not names:
        return {}
    done = call("squeue", "--noheader", "--array", "--all", "--name", ",".join(names), "--format", "%i|%T|%N|%j|%r")
    if done.returncode:
        raise refusal(done)
    jobs = {}
    for line in done.stdout.splitlines():
        job_id, *fields = line.split("|", 4)
        job = Queued(*fields)
        if job.name in names and job.state not in ENDED.split():
            jobs[job_id] = job
    return jobs


def ended(job_ids: Collection[str]) -> dict[str, JobEnd]:
    """Return the ends of those jobs that are over, as the accounting of the cluster has them, if it has one.

    It knows of an end some seconds later, and never of jobs of an array that were cancelled before they started.
    """
    if not job_ids:
        return {}
    try:
        # the arrays that they belong to, and those that are in none
        jobs = "--jobs=" + ",".join(sorted({job_id.partition("_")[0] for job_id in job_ids}))
        done = call(
            "sacct", "--noheader", "--parsable2", "--allocations", "--format=JobID,State,ExitCode,JobName", jobs
        )
    except SlurmError:
        return {}
    ends: dict[str, JobEnd] = {}
    for line in done.stdout.splitlines() if not done.returncode else ():
        job_id, words, exit_code, name = line.split("|", 3)
        state = words.split()[0].rstrip("+")  # CANCELLED by 1001
        ends.pop(job_id, None)  # the last row of a job counts
        if job_id in job_ids and state in ENDED.split():
            ends[job_id] = JobEnd(state, exit_code, name)
    return ends


def cancel(job_ids: Collection[str]) -> None:
    """Cancel these jobs; those that are over already are left alone.

    Raises:
        SlurmError: the cluster does not answer, or does not allow it.
    """
    if not job_ids:
        return
    done = call("scancel", *sorted(job_ids))
    bad = [line for line in done.stderr.splitlines() if not any(words in line for words in OVER)]
    if done.returncode and bad:
        raise refusal(done)


def available() -> bool:
    """Return True where the controller answers within seconds."""
    try:
        return " is UP" in call("scontrol", "ping", timeout=10).stdout
    except SlurmError:
        return False


def current() -> str | None:
    """The job this process runs in, as squeue writes it; None outside of a job.

    In an array that is not SLURM_JOB_ID: that of its last job is the array's own, and means all of its jobs.
    """
    array, task = os.environ.get("SLURM_ARRAY_JOB_ID"), os.environ.get("SLURM_ARRAY_TASK_ID")
    return f"{array}_{task}" if array and task else os.environ.get("SLURM_JOB_ID")


def requeue_current() -> bool:
    """Have the job this process runs in start again later, from its beginning, if it still counts as running.

    SLURM then kills the job: save first. A job that is ending, because somebody cancelled it or SLURM requeues it
    already, is left alone: `scontrol requeue` would bring back what was cancelled. The first process of a job that asks
    requeues it.

    Returns:
        Whether this call requeued it.

    Raises:
        SlurmError: this process runs in no job, or the cluster does not answer or allow it.
    """
    if " JobState=RUNNING " not in _shown():
        return False
    done = call("scontrol", "requeue", str(current()))
    # what ends a requeued job may end the question before its answer
    if not done.returncode or f" Restarts={restarts() + 1} " in _shown():
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
    job = current()
    if job is None:
        raise SlurmError("this process runs in no job of SLURM")
    done = call("scontrol", "--oneliner", "show", "job", job)
    if done.returncode:
        raise refusal(done)
    return done.stdout


def restarts() -> int:
    """Return the number of requeues of the job this process runs in; 0 outside of a job."""
    return int(os.environ.get("SLURM_RESTART_COUNT") or 0)


def requeue_elsewhere() -> bool:
    """Requeue this job, which a broken GPU has ended, and return True; where that is not possible, say why."""
    why = f"it was started {MOST_RESTARTS + 1} times; sbatch: {{exclude: NODE}} in the profile keeps it from a node"
    if restarts() < MOST_RESTARTS:
        try:
            return persistently(requeue_current)
        except SlurmError as refused:
            why = str(refused)
    print(f"the job is not requeued: {why}", flush=True)
    return False


def persistently(ask: Callable[[], bool]) -> bool:
    """Ask the controller with retries; it may be busy for a moment just when it preempts many jobs.

    Raises:
        SlurmError: it has not answered in several tries.
    """
    for _ in range(TRIES - 1):
        with suppress(SlurmError):
            return ask()
        time.sleep(1)
    return ask()
