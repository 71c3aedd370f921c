"""Cluster jobs of a study: their runs and states. Imports no torch.

`<root>/<study>/jobs/<time>/` is one submission: `dispatch.json`, the code, and the files and logs of its jobs.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from vitinit.benchmark.fields import Frozen
from vitinit.benchmark.files.atomic import write_atomically
from vitinit.slurm import jobs as cluster
from vitinit.slurm.errors import SlurmError
from vitinit.slurm.profiles import Profile


class Dispatch(Frozen):
    """One submission."""

    written: str
    """Time of the start. UTC, ISO 8601."""
    name: str
    """Name of its jobs: job ids begin anew when a cluster is set up anew, the name does not come again."""
    profile: str
    code: str
    """Folder with the code that its jobs run."""
    jobs: dict[str, tuple[str, ...]]
    """The run_ids of each job, by job id."""


@dataclass(frozen=True)
class Job:
    """A job that runs of a study were handed to."""

    job_id: str
    name: str
    folder: Path
    written: str
    run_ids: tuple[str, ...]


@dataclass(frozen=True)
class StudyJobs:
    """A study's jobs, and what the cluster says of them now."""

    jobs: tuple[Job, ...] = ()
    """Oldest first."""
    states: dict[str, cluster.Queued] = field(default_factory=dict)
    """Jobs that wait or run, by id."""
    silence: str = ""
    """Reason why the cluster gave no answer; empty where it answered."""

    @property
    def handed(self) -> dict[str, Job]:
        """The job of each run, by run_id: the last one that waits or runs, else the last one."""
        found: dict[str, Job] = {}
        for job in (*self.jobs, *(job for job in self.jobs if job.job_id in self.states)):
            found |= dict.fromkeys(job.run_ids, job)
        return found

    def over(self, job_id: str | None) -> bool:
        """Return True for a job of the study that is known to have ended."""
        ours = any(job.job_id == job_id for job in self.jobs)
        return ours and not self.silence and job_id not in self.states


def folder(root: Path, study: str) -> Path:
    """Return the folder of a study's job files."""
    return root / study / "jobs"


def write(path: Path, dispatch: Dispatch) -> None:
    """Remember a submission in its folder."""
    write_atomically(path / "dispatch.json", dispatch.model_dump_json(indent=1).encode())


def dispatches(root: Path, study: str) -> list[tuple[Path, Dispatch]]:
    """All submissions of a study with their folders, oldest first. What is none is passed over."""
    found = []
    for path in folder(root, study).glob("*/dispatch.json"):
        try:
            found.append((path.parent, Dispatch.model_validate_json(path.read_bytes())))
        except (OSError, ValidationError):
            continue
    return sorted(found, key=lambda item: (item[1].written, item[0].name))


def look(root: Path, study: str) -> StudyJobs:
    """Ask the cluster about the jobs of a study; where there are none, nothing is asked."""
    jobs = tuple(
        Job(job_id, dispatch.name, path, dispatch.written, run_ids)
        for path, dispatch in dispatches(root, study)
        for job_id, run_ids in dispatch.jobs.items()
    )
    if not jobs:
        return StudyJobs()
    if shutil.which("squeue") is None:
        return StudyJobs(jobs, silence="there is no squeue here")
    try:
        states = cluster.queued({job.job_id for job in jobs})
    except SlurmError as error:
        return StudyJobs(jobs, silence=str(error))
    ours = {(job.job_id, job.name) for job in jobs}
    return StudyJobs(jobs, {job_id: state for job_id, state in states.items() if (job_id, state.name) in ours})


def ended(jobs: Collection[Job]) -> dict[str, str]:
    """Return how jobs ended, in words, by job id; those that the cluster has forgotten too."""
    states = cluster.ended({job.job_id for job in jobs})
    found = {job.job_id: f"job {job.job_id} has gone, and the cluster does not say how" for job in jobs}
    for job in jobs:
        state = states.get(job.job_id)
        if state and state.name == job.name:
            code = "" if state.exit_code in ("", "0:0") else f", exit code {state.exit_code}"
            found[job.job_id] = f"job {job.job_id} ended: {state.state}{code}"
    return found


def log_tells(job: Job, pattern: str) -> bool:
    """Return True if the cluster's own lines in the log of a job match a regular expression."""
    text = "\n".join(path.read_text("utf-8", "replace") for path in cluster.log_files(job.folder, job.job_id))
    return re.search(rf"^slurmstepd.*({pattern})", text, re.IGNORECASE | re.MULTILINE) is not None


def describe(job: Job, state: cluster.Queued) -> str:
    """A queued run, for people."""
    if state.state == "RUNNING":
        return f"waits for its turn in job {job.job_id} on {state.nodes}, which has {state.time_left} left"
    reason = f" ({state.reason})" if state.reason not in ("", "None") else ""
    return f"job {job.job_id} {state.state.lower().replace('_', ' ')}{reason}"


def summary(profile: Profile) -> str:
    """Return the resources that a job requests, in words."""
    asked = profile.model_dump(exclude_defaults=True, exclude={"name", "setup", "environment"})
    asked = {"cpus": profile.cpus, "time": profile.time, "gpus": profile.gpus or "none"} | asked
    return ", ".join(f"{key} {value}" for key, value in asked.items())
