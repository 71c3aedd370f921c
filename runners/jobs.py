"""Which runs of a study were handed to the cluster, in which jobs, and what has become of those jobs. No torch.

`<root>/<study>/jobs/<time>/` is one submission: `dispatch.json`, and the files and logs of its jobs.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from benchmark.atomic import write_atomically
from benchmark.spec import Frozen
from slurm import jobs as cluster
from slurm.profiles import Profile
from slurm.submit import log_files


class Dispatch(Frozen):
    """One submission."""

    written: str
    """UTC, ISO 8601."""
    name: str
    """Name of its jobs: job ids begin anew when a cluster is set up anew, the name does not come again."""
    profile: str
    code: str
    """Folder with the code that its jobs run."""
    jobs: dict[str, tuple[str, ...]]
    """The run_ids of each job, by job id."""


@dataclass(frozen=True)
class Handed:
    """The job that a run was handed to last."""

    job_id: str
    name: str
    folder: Path


def folder(root: Path, study: str) -> Path:
    """Where a study keeps what belongs to its jobs."""
    return root / study / "jobs"


def write(path: Path, dispatch: Dispatch) -> None:
    """Remember a submission in its folder.

    Raises:
        OSError: it cannot be written.
    """
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


def handed(root: Path, study: str) -> dict[str, Handed]:
    """The job that each run of a study was handed to last, by run_id."""
    found: dict[str, Handed] = {}
    for path, dispatch in dispatches(root, study):
        for job_id, run_ids in dispatch.jobs.items():
            found |= dict.fromkeys(run_ids, Handed(job_id, dispatch.name, path))
    return found


def queued(handed: dict[str, Handed]) -> dict[str, cluster.Queued]:
    """The runs whose job waits or runs, by run_id. Where there is no squeue nobody can tell: none.

    Raises:
        SlurmError: the cluster does not answer. Not to know is no reason to submit anything again.
    """
    if not handed or shutil.which("squeue") is None:
        return {}
    states = cluster.queued({job.job_id for job in handed.values()})
    return {
        run_id: states[job.job_id]
        for run_id, job in handed.items()
        if job.job_id in states and states[job.job_id].name == job.name
    }


def ended(handed: dict[str, Handed], run_ids: Collection[str]) -> dict[str, str]:
    """How the last job of these runs ended, for people, by run_id. What the cluster has forgotten is said too."""
    asked = {run_id: handed[run_id] for run_id in run_ids if run_id in handed}
    if not asked:
        return {}
    states = cluster.ended({job.job_id for job in asked.values()}) or {}
    found = {}
    for run_id, job in asked.items():
        state = states.get(job.job_id)
        if state and state.name == job.name:
            code = "" if state.exit_code in ("", "0:0") else f", exit code {state.exit_code}"
            found[run_id] = f"job {job.job_id} ended: {state.state}{code}"
        else:
            found[run_id] = f"job {job.job_id} has gone, and the cluster does not say how"
    return found


def log_tells(job: Handed, pattern: str) -> bool:
    """Whether the cluster's own lines in the log of a job match a regular expression."""
    for path in log_files(job.folder, job.job_id):
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        if any(line.startswith("slurmstepd") and re.search(pattern, line, re.IGNORECASE) for line in lines):
            return True
    return False


def describe(job: Handed, state: cluster.Queued) -> str:
    """A queued run, for people."""
    if state.state == "RUNNING":
        return f"waits for its turn in job {job.job_id} on {state.nodes}"
    reason = f" ({state.reason})" if state.reason not in ("", "None") else ""
    return f"job {job.job_id} {re.sub('_', ' ', state.state.lower())}{reason}"


def summary(profile: Profile) -> str:
    """What a job asks for, for people."""
    asked = profile.model_dump(exclude_defaults=True, exclude={"name", "setup", "environment"})
    return ", ".join(f"{key} {value}" for key, value in ({"cpus": profile.cpus, "time": profile.time} | asked).items())
