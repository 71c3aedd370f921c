"""Cluster jobs of a study: their runs and states. Imports no torch.

`<root>/<study>/jobs/<time>/` is one submission: `jobs.json`, the code, and the files and logs of its jobs.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from vitinit.benchmark.fields import Frozen
from vitinit.benchmark.files.atomic import write_atomically
from vitinit.slurm import jobs as cluster
from vitinit.slurm.errors import SlurmError


class Job(Frozen):
    """A job that runs of a study were handed to."""

    job_id: str
    name: str
    """Job ids begin anew when a cluster is set up anew, the name does not come again."""
    written: str
    """Time of the submission. UTC, ISO 8601."""
    folder: Path
    """Holds its files and logs."""
    run_ids: tuple[str, ...]
    state: cluster.Queued | None = None
    """As the cluster has it now, where it waits or runs."""
    silence: str = ""
    """Reason why the cluster gave no answer; empty where it answered."""

    def describe(self) -> str:
        """Return where a job that waits or runs stands, for people."""
        assert self.state
        where = f"on {self.state.nodes}, {self.state.time_left} left" if self.state.nodes else f"({self.state.reason})"
        return f"in job {self.job_id}, {self.state.state.lower()} {where}"


JOBS = TypeAdapter(tuple[Job, ...])


def folder(root: Path, study: str) -> Path:
    """Return the folder of a study's job files."""
    return root / study / "jobs"


def write(path: Path, jobs: tuple[Job, ...]) -> None:
    """Remember the jobs of a submission in its folder."""
    write_atomically(path / "jobs.json", JOBS.dump_json(jobs, indent=1))


def look(root: Path, study: str) -> list[Job]:
    """Return the jobs of a study, oldest first, with what the cluster says of them now."""
    jobs: list[Job] = []
    for path in sorted(folder(root, study).glob("*/jobs.json")):
        with suppress(OSError, ValidationError):
            jobs += JOBS.validate_json(path.read_bytes())
    try:
        states = cluster.queued({job.job_id for job in jobs})
    except SlurmError as error:
        return [job.model_copy(update={"silence": str(error)}) for job in jobs]
    ours = {(job_id, state.name): state for job_id, state in states.items()}
    return [job.model_copy(update={"state": ours.get((job.job_id, job.name))}) for job in jobs]


def handed(jobs: Collection[Job]) -> dict[str, Job]:
    """Return the job of each run, by run_id: the last one that waits or runs, else the last one."""
    return {run_id: job for job in sorted(jobs, key=lambda job: job.state is not None) for run_id in job.run_ids}


def ended(jobs: Collection[Job]) -> dict[str, str]:
    """Return how jobs ended, in words, by job id; those that the cluster has forgotten too."""
    states = cluster.ended({job.job_id for job in jobs})
    found = {}
    for job in jobs:
        end = states.get(job.job_id)
        known = end and end.name == job.name and f"ended: {end.state}, exit code {end.exit_code}"
        found[job.job_id] = f"job {job.job_id} {known or 'has gone, and the cluster does not say how'}"
    return found
