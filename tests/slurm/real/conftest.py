"""A real SLURM on this machine, for the tests that need one."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from single_node import SingleNode, single_node
from studies import GRID, Study

from tests.conftest import shared_folder
from tests.processes import call, until
from vitinit.benchmark.records.store import Store
from vitinit.slurm import jobs
from vitinit.slurm.profiles import Profile
from vitinit.slurm.submit import submit


@pytest.fixture(scope="session")
def slurm() -> Iterator[SingleNode]:
    """SLURM with accounting, 4 cores, 2 fake GPUs and arrays of at most 6; SLURM_CONF points at it."""
    with single_node() as node:
        yield node


@pytest.fixture
def node(node_settings: dict[str, str]) -> Iterator[SingleNode]:
    """A SLURM with settings of its own, for one test: parametrize `node_settings` with those of up.sh."""
    with single_node(**node_settings) as node:
        yield node


class Work:
    """Jobs of one test: a folder for what they write, and one with the code they run."""

    def __init__(self, folder: Path) -> None:
        self.out, self.logs, self.code = folder / "out", folder / "logs", folder / "code"
        self.out.mkdir()
        shutil.copytree(Path(__file__).parent / "calls", self.code / "calls")
        self.job_ids: list[str] = []
        self.name = f"test-{uuid.uuid4().hex[:6]}"

    def submit(self, function, arguments, **fields) -> list[str]:
        """Submit calls with (out, argument), in jobs of one core and five minutes unless `fields` says otherwise."""
        profile = Profile(**{"cpus": 1, "time": 5, "signal_seconds": 60} | fields)
        pairs = [(self.out, argument) for argument in arguments]
        job_ids = submit(function, pairs, profile, self.logs, name=self.name, code=self.code)
        self.job_ids += job_ids
        return job_ids

    def written(self) -> dict[str, str]:
        """File names and contents of what the jobs wrote."""
        return {path.name: path.read_text() for path in self.out.iterdir() if path.suffix != ".part"}

    def queued(self) -> dict[str, jobs.Queued]:
        """Jobs that run or may still run."""
        return jobs.queued([self.name])

    def wait(self) -> None:
        """Until all jobs are over."""
        until(lambda: not self.queued())

    def log(self, job_id: str) -> str:
        """Return the output of all processes of a job."""
        return "".join(path.read_text() for path in self.logs.glob(f"{job_id}_*_log.out"))


@pytest.fixture
def work(tmp_path) -> Iterator[Work]:
    """For tests that also ask for `slurm` or `node`, before this one: jobs are cancelled while it still runs."""
    work = Work(tmp_path)
    yield work
    jobs.cancel(work.job_ids)
    work.wait()


@pytest.fixture(scope="session")
def left_alone(tmp_path_factory) -> dict:
    """The records of GRID where nothing interrupted it, without a cluster, by run_id; once for all workers."""
    folder = shared_folder(tmp_path_factory) / "left-alone"
    try:
        folder.mkdir()  # atomic: exactly one worker gets past this line
    except FileExistsError:
        until((folder / "finished").exists)
    else:
        try:
            Study(folder, GRID)
            done = call("run", "study.yaml", "--executor", "local", "--workers", "2", cwd=folder)
            assert done.returncode == 0, done.stdout + done.stderr
        finally:
            (folder / "finished").touch()
    return Store(folder / "results" / "local").read("study").done


@pytest.fixture
def study(tmp_path) -> Iterator[Study]:
    """GRID in a folder of its own; asks for a SLURM beside it."""
    study = Study(tmp_path, GRID)
    yield study
    jobs.cancel(study.jobs())
