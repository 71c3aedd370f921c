"""Jobs of a cluster: workers of a study that wait or run. Imports no torch.

`<root>/<study>/jobs/<time>-<six hex digits>/` is one submission: the work, the code, and the files and logs of its
jobs. These are named after study and digits, so that they are found whatever becomes of their launcher.
"""

import json
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from vitinit.benchmark.files.reading import read
from vitinit.initializers.errors import VitinitError
from vitinit.slurm import jobs as cluster

RUNS = "runs.json"
"""Name of the file with the run_ids of a submission."""


def folder(root: Path, study: str) -> Path:
    """Return the folder of a study's job files."""
    return root / study / "jobs"


def name(study: str, submission: Path) -> str:
    """Return the name of the jobs of a submission. Job ids begin anew when a cluster is set up anew, names do not."""
    return f"{study}-{submission.name[-6:]}"


@dataclass(frozen=True)
class Jobs:
    """Submissions of a study, oldest first by the name of their jobs, and what the cluster says of these now."""

    submissions: dict[str, Path]
    alive: dict[str, cluster.Queued] = field(default_factory=dict)
    """Jobs that wait or run, by id."""
    silence: str = ""
    """Reason why the cluster gave no answer; empty where it answered."""

    def of(self, job_id: str | None) -> Path | None:
        """Return the submission of a job; None for a job that was not handed out here."""
        written = (path for path in reversed(self.submissions.values()) if any(path.glob(f"{job_id}_*")))
        return next(written, None) if job_id else None

    def over(self, job_id: str | None) -> bool:
        """Return True if a job was handed out here and is known to have ended."""
        if self.silence or not (submission := self.of(job_id)):
            return False
        job = self.alive.get(str(job_id))
        return not (job and self.submissions.get(job.name) == submission)

    def runs(self) -> set[str]:
        """Return the runs that jobs which wait or run may carry out.

        Raises:
            VitinitError: the file that says so is damaged.
        """
        run_ids: set[str] = set()
        for path in {self.submissions[job.name] / RUNS for job in self.alive.values()}:
            try:
                run_ids |= set(json.loads(read(path)))
            except (OSError, ValueError, TypeError):  # whoever may write there may have written anything
                raise VitinitError(
                    f"{path} is damaged: the runs of jobs that wait or run are not known; --add N hands over more"
                ) from None
        return run_ids


def look(root: Path, study: str) -> Jobs:
    """Return the jobs of a study."""
    submissions = {name(study, path): path for path in sorted(folder(root, study).glob("*-*"))}
    try:
        return Jobs(submissions, cluster.queued(submissions))
    except cluster.SlurmError as error:
        return Jobs(submissions, silence=str(error))


def ended(jobs: Jobs, job_ids: Collection[str]) -> dict[str, str]:
    """Return how jobs ended, in words, by job id; those that the cluster has forgotten too."""
    states = cluster.ended(job_ids)
    words = {}
    for job_id in job_ids:
        end = states.get(job_id)
        known = end and jobs.submissions.get(end.name) == jobs.of(job_id)
        how = f"ended: {end.state}, exit code {end.exit_code}" if end and known else ""
        words[job_id] = f"job {job_id} {how or 'has gone, and the cluster does not say how'}"
    return words
