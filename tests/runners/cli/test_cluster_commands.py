"""What `vitinit run` and `vitinit slurm` do with a cluster, whose answers are a test's."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.runners.cli.test_cli import changed, write
from tests.runners.launching.test_launch import hand_out
from vitinit.benchmark.grids import grid
from vitinit.benchmark.records.store import Store
from vitinit.runners.launching import jobs

pytestmark = pytest.mark.usefixtures("undisturbed")
DRY = ("run", "smoke", "--dry-run")
UP = 'case "$1" in ping) echo "Slurmctld(primary) at head is UP";; *) echo "MaxArraySize = 4";; esac'


@pytest.fixture(autouse=True)
def outside_of_a_job(monkeypatch):
    for name in ("SLURM_JOB_ID", "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID", "VITINIT_PROFILE"):
        monkeypatch.delenv(name, raising=False)


def options(printed: str) -> dict[str, str]:
    """What a script that was printed says to sbatch."""
    return dict(re.findall(r"^#SBATCH --([a-z-]+)(?:=(.*))?$", printed, re.MULTILINE))


def test_a_dry_run_shows_runs_jobs_device_and_a_script_that_bash_takes(vitinit, cluster_says, monkeypatch):
    cluster_says(sbatch="exit 1", scontrol=UP)
    Path("mine.yaml").write_text("account: 0123\ngpus: 1\ngpu_option: gpus\nruns_per_job: 3\nsetup: module load cuda\n")
    code, out, err = vitinit(*DRY, "--profile", "mine.yaml")
    assert (code, err) == (0, "")
    assert "6 runs in 2 jobs of up to 3 on cuda; profile mine\n" in out
    assert {"account": "0123", "gpus": "1", "array": "0-1%2", "job-name": "smoke"}.items() <= options(out).items()
    script = out[out.index("#!") :]
    assert subprocess.run(["bash", "-n"], input=script, text=True).returncode == 0
    assert not Path("results").exists()
    assert options(vitinit(*DRY, "--executor", "local")[1]) == {}
    monkeypatch.setenv("VITINIT_PROFILE", "single-node")
    assert options(vitinit(*DRY)[1])["partition"] == "main"
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    assert options(vitinit(*DRY)[1]) == {}, "inside of a job runs are carried out there"


def test_runs_of_a_cluster_that_does_not_answer_are_left(tmp_path, vitinit, monkeypatch):
    path = write(tmp_path / "tiny.yaml", changed(blocks__0__recipe__epochs=1))
    hand_out(Path("results/local"), "2026-01-01", "tiny", job_7=[cell.run_id for cell in grid.load(path).cells])
    monkeypatch.setenv("PATH", "/nowhere")
    code, out, err = vitinit("run", path, "--executor", "inline")
    said = "queued, 2 runs: was handed out as job 7; squeue: No such file or directory"
    gone = "if that cluster is gone for good, remove "
    assert (code, said in out, gone in out, "nothing to do: 2 runs: 2 queued" in out) == (0, True, True, True), (
        out + err
    )
    assert Store("results/local").read("tiny").done == {}


def test_a_run_is_handed_over_once_with_a_copy_of_the_code(tmp_path, vitinit, cluster_says):
    path = write(tmp_path / "tiny.yaml", changed(blocks__0__recipe__epochs=1))
    cluster_says(sbatch="echo Submitted batch job 7", scontrol=UP, squeue="true", sacct="true")
    run = ("run", path, "--executor", "slurm", "--only", "row=Mimetic")
    code, out, err = vitinit(*run)
    assert (code, "handed to SLURM: job 7; logs: " in out) == (0, True), out + err
    (handed,) = jobs.look(Path("results/local"), "tiny")
    (cell,) = (cell for cell in grid.load(path).cells if cell.row == "Mimetic")
    assert (handed.job_id, handed.run_ids) == ("7", (cell.run_id,))
    assert (handed.folder / "code/vitinit/runners/launching/cluster.py").exists()
    cluster_says(squeue=f"echo '7|PENDING|1:00||{handed.name}|Priority'", sbatch="echo Submitted batch job 8")
    code, out, err = vitinit(*run)
    assert (code, "job 8" in out, "nothing to do: 1 run: 1 queued" in out) == (0, False, True), out + err
    cluster_says(squeue="true", sacct=f"echo '7|FAILED|1:0|{handed.name}'", scancel="exit 1")
    assert "to do, 1 run: job 7 ended: FAILED, exit code 1:0" in vitinit("status", path)[1]
    assert "no job of it is left to cancel" in vitinit("slurm", "cancel", path)[1]
