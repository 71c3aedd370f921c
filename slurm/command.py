"""Calling SLURM's commands and the job ids in their output."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Collection, Iterator

from vitinit.slurm.errors import SlurmError

TIMEOUT_S = 60.0
"""Seconds that SLURM's commands have to answer; a controller that is down makes them try for about that long."""

_FILTERS = ("SQUEUE_", "SACCT_", "SINFO_")
"""Variables with which a user changes what these commands show by default."""


def call(*command: str, timeout: float = TIMEOUT_S) -> subprocess.CompletedProcess[str]:
    """Run a command of SLURM whose output is to be parsed; its exit status is for the caller to judge.

    Raises:
        SlurmError: no such command here, none that this user may execute, or no answer within `timeout` seconds.
    """
    environment = {key: value for key, value in os.environ.items() if not key.startswith(_FILTERS)}
    environment |= {"LC_ALL": "C", "SLURM_BITSTR_LEN": "0"}  # 0: lists of array tasks are never shortened
    try:
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, errors="replace", timeout=timeout
        )
    except FileNotFoundError as error:
        raise SlurmError(f"{command[0]}: no such command; this machine has no SLURM on its PATH") from error
    except PermissionError as error:
        raise SlurmError(f"{command[0]}: this user may not execute it") from error
    except subprocess.TimeoutExpired as error:
        raise SlurmError(f"{command[0]} did not answer within {timeout:.0f} s; is the cluster up?") from error


def refusal(done: subprocess.CompletedProcess[str]) -> SlurmError:
    """The error for a command that failed: its own words."""
    words = done.stderr.strip() or done.stdout.strip() or f"exit status {done.returncode}"
    return SlurmError(f"{done.args[0]}: {words}")


def expanded(job_id: str) -> Iterator[str]:
    """Every job that SLURM means: `12_[0-2,5%2]` is 12_0, 12_1, 12_2 and 12_5."""
    base, _, tasks = job_id.partition("_")
    if not tasks.startswith("["):
        yield job_id
        return
    for part in tasks.strip("[]").partition("%")[0].split(","):
        first, _, rest = part.partition("-")
        last, _, step = (rest or first).partition(":")
        for number in range(int(first), int(last) + 1, int(step or 1)):
            yield f"{base}_{number}"


def bases(job_ids: Collection[str]) -> list[str]:
    """The ids of the arrays that these jobs belong to, and of those that are in none.

    Raises:
        SlurmError: a job id is not as squeue writes it.
    """
    for job_id in job_ids:
        if not re.fullmatch(r"[0-9]+(_[0-9]+)?", job_id):
            raise SlurmError(f"job id {job_id!r}: expected NUMBER or NUMBER_TASK, such as 12_0")
    return sorted({job_id.partition("_")[0] for job_id in job_ids}, key=int)


def parts(items: list[str], size: int = 500) -> Iterator[list[str]]:
    """The items in lists that fit on a command line."""
    for start in range(0, len(items), size):
        yield items[start : start + size]
