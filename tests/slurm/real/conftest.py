"""A real SLURM on this machine, for the tests that need one."""

import pytest
from single_node import single_node
from studies import GRID, Study

from tests.conftest import shared_folder
from tests.processes import call, until
from vitinit.benchmark.records.store import Store
from vitinit.slurm import jobs


@pytest.fixture(scope="session")
def slurm():
    """SLURM with accounting, 4 cores, 2 fake GPUs and arrays of at most 6; SLURM_CONF points at it."""
    with single_node() as node:
        yield node


@pytest.fixture(scope="session")
def left_alone(tmp_path_factory):
    """The records of GRID where nothing interrupted it, without a cluster, by run_id; once for all workers."""
    folder = shared_folder(tmp_path_factory) / "left-alone"
    try:
        folder.mkdir()  # atomic: exactly one worker gets past this line
    except FileExistsError:
        until((folder / "finished").exists)
    else:
        try:
            Study(folder, GRID)
            done = call("run study.yaml --executor local --workers 2", folder)
            assert done.returncode == 0, done.stdout + done.stderr
        finally:
            (folder / "finished").touch()
    return Store(folder / "results" / "local").read("study").done


@pytest.fixture
def study(tmp_path):
    """GRID in a folder of its own; asks for a SLURM beside it."""
    study = Study(tmp_path, GRID)
    yield study
    jobs.cancel(study.jobs())
