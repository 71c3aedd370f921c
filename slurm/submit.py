"""Submitting: one job per argument, as job arrays that the cluster takes."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from submitit import SlurmExecutor

from slurm.command import call
from slurm.errors import SlurmError
from slurm.profiles import Profile
from slurm.task import Task

T = TypeVar("T")


class _Executor(SlurmExecutor):
    """Also writes scripts where there is no cluster."""

    @classmethod
    def affinity(cls) -> int:
        return 2


def submit(
    function: Callable[[T], object],
    arguments: Sequence[T],
    profile: Profile,
    folder: Path,
    *,
    name: str,
    code: Path,
) -> list[str]:
    """Have the cluster call `function` once per argument, each call a job of its own.

    Args:
        function: importable in the job; called in every process of it.
        arguments: picklable.
        profile: what each job asks for.
        folder: on a disk that every node sees; gets the pickled calls and the logs.
        name: of the jobs, as squeue shows it.
        code: folder from which Python imports first in the job, and the job's working directory. Nothing may change
            in it while jobs are queued.

    Returns:
        Each argument's job id, as squeue writes it.

    Raises:
        SlurmError: the cluster does not answer or refuses.
    """
    task = Task(function)
    executor = _executor(profile, folder, name, code)
    with _outside_of_jobs(), executor.batch():
        jobs = [executor.submit(task, argument) for argument in arguments]
    return [job.job_id for job in jobs]


def script(profile: Profile, count: int, folder: Path, name: str, code: Path) -> str:
    """The script that sbatch gets for `count` arguments; needs no cluster."""
    executor = _executor(profile, folder, name, code)
    if count > 1:
        executor.parameters["map_count"] = count
    return executor._make_submission_file_text(executor._submitit_command_str, "")


def log_files(folder: Path, job_id: str) -> list[Path]:
    """The logs of a job, one per process, in the order of ranks. A job that was requeued goes on in the same files."""
    return sorted(folder.glob(f"{job_id}_*_log.out"))


def _executor(profile: Profile, folder: Path, name: str, code: Path) -> _Executor:
    code = code.absolute()
    executor = _Executor(folder)
    executor.update_parameters(
        job_name=name,
        time=profile.minutes,
        nodes=profile.nodes,
        ntasks_per_node=profile.processes_per_node,
        cpus_per_task=profile.cpus,
        setup=[f"cd {shlex.quote(str(code))}", f"export PYTHONPATH={shlex.quote(str(code))}"],
        wckey=None,
        stderr_to_stdout=True,
    )
    return executor


@contextmanager
def _outside_of_jobs() -> Iterator[None]:
    yield
