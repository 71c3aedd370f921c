"""Whole studies through a real SLURM: as arrays, preempted, out of time, cancelled, killed; nothing lost, nothing twice."""

import json
import os
import re
import signal
from datetime import datetime
from pathlib import Path

import pytest
import yaml
from single_node import until

from benchmark.store import Store
from runners import claims, jobs
from tests.processes import call

GRID = {
    "title": "long enough to be interrupted",
    "rows": {
        "Trunc normal": {"base": "trunc_normal"},
        "Mimetic": {"base": "kaiming_uniform", "method": "mimetic"},
    },
    "blocks": [
        {
            "datasets": [{"name": "digits", "train_size": 200}],
            "model": {"preset": "vit_micro", "image_size": 8, "patch_size": 1, "drop_rate": 0.1},
            "recipe": {"name": "small", "epochs": 20, "hflip": 0.5},
            "seeds": [0],
        }
    ],
}


class Study:
    """A grid and its results in a folder of their own."""

    def __init__(self, folder: Path, grid: dict, **profile) -> None:
        self.folder, self.root = folder, folder / "results" / "local"
        (folder / "study.yaml").write_text(yaml.safe_dump(grid))
        fields = {"partition": "main", "cpus": 1, "time": 10, "signal_seconds": 60} | profile
        (folder / "profile.yaml").write_text(yaml.safe_dump(fields))

    def vitinit(self, *arguments: str, code: int | None = 0) -> str:
        """What a command prints, `run` with the profile; its exit code must be `code`."""
        words = [*arguments, "--profile", "profile.yaml"] if arguments[0] == "run" else arguments
        done = call(*words, cwd=self.folder)
        assert code is None or done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def submit(self, *options: str) -> str:
        return self.vitinit("run", "study.yaml", "--executor", "slurm", "--checkpoint-steps", "5", *options)

    @property
    def records(self) -> dict:
        return Store(self.root).read("study").done

    def live(self) -> list[claims.Owner]:
        folders = (self.root / "study" / "unfinished").glob("*")
        return [owner for folder in folders if (owner := claims.live(folder))]

    def until_trained(self, epochs: int = 2) -> claims.Owner:
        """Until some run has so many epochs behind it; who carries it out."""
        until(lambda: any(owner.epoch >= epochs for owner in self.live()), 90)
        return next(owner for owner in self.live() if owner.epoch >= epochs)

    def until_done(self, count: int = 2) -> None:
        until(lambda: len(self.records) == count, 150)

    def jobs(self) -> list[str]:
        return [job_id for _, dispatch in jobs.dispatches(self.root, "study") for job_id in dispatch.jobs]


@pytest.fixture(scope="session")
def left_alone(tmp_path_factory) -> dict:
    """The records of GRID where nothing interrupted it, carried out without a cluster, by run_id."""
    study = Study(tmp_path_factory.mktemp("left-alone"), GRID)
    done = call("run", "study.yaml", "--executor", "local", "--workers", "2", cwd=study.folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return study.records


def same_bits(found: dict, expected: dict) -> None:
    assert found.keys() == expected.keys()
    for run_id, record in found.items():
        there, here = expected[run_id].without_times(), record.without_times()
        for content in (there, here):
            del content["environment"], content["execution"]["executor"]
        assert here == there
        assert here["weights"]


@pytest.fixture
def study(tmp_path) -> Study:
    return Study(tmp_path, GRID)


@pytest.fixture(autouse=True)
def _no_job_is_left(request, tmp_path):
    yield
    for folder in tmp_path.glob("**/jobs/*/dispatch.json"):
        ids = list(json.loads(folder.read_text())["jobs"])
        os.system("scancel " + " ".join(ids))  # noqa: S605


def test_the_smoke_grid_as_an_array_of_which_two_run_at_once(slurm, tmp_path):
    study = Study(tmp_path, GRID, parallel=2)
    text = study.vitinit("run", "smoke", "--executor", "auto", "--wait")
    assert "6 runs in 6 jobs of 1; profile profile" in text
    assert re.search(r"handed to SLURM: jobs \d+_0 to \d+_5", text)
    assert "6 runs recorded, 0 failed, 0 left to do" in text
    assert text.count("top-1") == 6
    assert "6 runs: 6 done" in study.vitinit("status", "smoke")
    assert "to do" not in study.vitinit("plan", "smoke")

    again = study.vitinit("run", "smoke", "--executor", "slurm")
    assert "0 runs in 0 jobs" in again
    assert "handed" not in again

    [(_, dispatch)] = jobs.dispatches(study.root, "smoke")
    ids = ",".join(dispatch.jobs)
    until(lambda: slurm.run("sacct", "-nPX", "-j", ids, "-o", "state").split() == ["COMPLETED"] * 6, 20)
    rows = slurm.run("sacct", "-nPX", "-j", ids, "-o", "start,end").split()
    spans = [[datetime.fromisoformat(time) for time in row.split("|")] for row in rows]
    assert len(spans) == 6
    assert max(sum(start <= moment < end for start, end in spans) for moment, _ in spans) == 2
    record = next(iter(Store(study.root).read("smoke").done.values()))
    assert record.execution["executor"] == "slurm"
    assert record.environment["slurm"]["job_partition"] == "main"


def test_preempted_it_saves_comes_back_and_ends_with_the_same_bits(slurm, study, left_alone):
    study.submit("--runs-per-job", "2")
    study.until_trained()
    assert "job" in study.vitinit("status", "study.yaml")
    slurm.run("sbatch", "-p", "high", "-c", "4", "-o", "/dev/null", "--wrap", "sleep 2")
    until(lambda: not study.live(), 30)
    status = study.vitinit("status", "study.yaml")
    assert "1 queued" in status or "2 queued" in status
    study.until_done()
    same_bits(study.records, left_alone)
    assert max(len(record.sessions) for record in study.records.values()) == 2


def test_out_of_time_it_saves_comes_back_and_ends_with_the_same_bits(slurm, tmp_path, left_alone):
    study = Study(tmp_path, GRID, time=1, signal_seconds=55)  # SLURM may be a minute early: told within seconds
    study.submit("--runs-per-job", "2")
    study.until_done()
    same_bits(study.records, left_alone)
    logs = study.vitinit("slurm", "logs", next(iter(study.records)))
    assert "stopped by SIGUSR2; what had begun is saved" in logs
    assert sum(len(record.sessions) for record in study.records.values()) > 2


def scancel(slurm, study: Study, owner: claims.Owner) -> None:
    assert re.search(r"cancelled 1 jobs with \d runs", study.vitinit("slurm", "cancel", "study.yaml"))


def kill_the_worker(slurm, study: Study, owner: claims.Owner) -> None:
    """The process of the job, whose children carry out the runs."""
    stat = Path(f"/proc/{owner.pid}/stat").read_text().rpartition(")")[2].split()
    fork_server = int(stat[1])
    parent = int(Path(f"/proc/{fork_server}/stat").read_text().rpartition(")")[2].split()[1])
    assert "submitit" in Path(f"/proc/{parent}/cmdline").read_text()
    os.kill(parent, signal.SIGKILL)


def kill_slurmd(slurm, study: Study, owner: claims.Owner) -> None:
    """The node's daemon, and everything that it had started, as when a node loses power."""
    slurm.kill("slurmd")
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = process.read_text()
        except OSError:
            continue
        if str(study.folder) in words and "submitit" in words:
            os.kill(int(process.parent.name), signal.SIGKILL)
    slurm.up()


ACCIDENTS = [scancel, kill_the_worker, kill_slurmd]


@pytest.mark.parametrize("accident", ACCIDENTS)
def test_the_same_command_repairs_what_an_accident_has_left(slurm, study, left_alone, accident):
    repaired(slurm, study, left_alone, accident)


def repaired(slurm, study: Study, left_alone: dict, accident) -> None:
    study.submit("--runs-per-job", "2")
    owner = study.until_trained()
    accident(slurm, study, owner)
    until(lambda: not jobs.queued(jobs.handed(study.root, "study")) or len(study.records) == 2, 120)
    if len(study.records) < 2:
        until(lambda: not study.live(), 30)
        status = study.vitinit("status", "study.yaml")
        assert re.search(r"to do, \d runs: job \d+ (ended: (CANCELLED|FAILED|NODE_FAIL)|has gone)", status), status
    text = study.submit("--wait")
    assert "2 runs recorded, 0 failed, 0 left to do" in text
    same_bits(study.records, left_alone)


def test_more_memory_than_asked_for_is_a_failure_with_that_reason(slurm, study, monkeypatch):
    """No cgroups on this machine: the job's end is what such a cluster would say, written by the job itself."""
    pytest.importorskip("slurm")
    study.submit("--runs-per-job", "2")
    owner = study.until_trained()
    kill_the_worker(slurm, study, owner)
    until(lambda: not jobs.queued(jobs.handed(study.root, "study")), 60)


def test_three_hundred_tiny_runs_in_a_few_jobs_none_lost_and_none_twice(slurm, tmp_path):
    tiny = json.loads(json.dumps(GRID))
    tiny["blocks"][0] |= {
        "datasets": [{"name": "digits", "train_size": 50}],
        "model": {"preset": "vit_micro", "image_size": 8, "patch_size": 4, "depth": 1, "width": 16},
        "recipe": {"name": "small", "epochs": 1, "warmup_epochs": 0},
        "seeds": list(range(150)),
    }
    study = Study(tmp_path, tiny, parallel=2)
    text = study.vitinit("run", "study.yaml", "--executor", "slurm", "--runs-per-job", "100")
    assert "300 runs in 3 jobs of up to 100" in text
    again = study.vitinit("run", "study.yaml", "--executor", "slurm", "--runs-per-job", "100", "--wait")
    assert "0 runs in 0 jobs" in again
    assert "300 runs recorded, 0 failed, 0 left to do" in again
    assert len(study.records) == 300
    assert {len(record.sessions) for record in study.records.values()} == {1}
    (folder,) = {folder for folder, _ in jobs.dispatches(study.root, "study")}
    lines = "".join(path.read_text() for path in folder.glob("*_log.out")).splitlines()
    trained = [line.split()[0] for line in lines if ": top-1 " in line]
    assert sorted(trained) == sorted(study.records)


def test_a_run_of_two_processes_in_a_job(slurm, tmp_path, left_alone):
    study = Study(tmp_path, GRID, processes=2)
    study.submit("--runs-per-job", "2")
    study.until_trained()
    slurm.run("sbatch", "-p", "high", "-c", "4", "-o", "/dev/null", "--wrap", "sleep 2")
    study.until_done()
    for run_id, record in study.records.items():
        assert record.execution["processes"] == 2
        losses = [row.train_loss for row in record.history]
        assert losses[:3] == pytest.approx([row.train_loss for row in left_alone[run_id].history[:3]], rel=1e-2)
    assert max(len(record.sessions) for record in study.records.values()) == 2


def test_what_is_wrong_with_a_profile_is_said_before_anything_is_submitted(slurm, tmp_path):
    study = Study(tmp_path, GRID, partition="mian")
    text = study.vitinit("slurm", "check", "--profile", "profile.yaml", code=1)
    assert "mian" in text
    assert "main" in text
    assert not study.jobs()
