"""`vitinit run`, `status` and `slurm` with a cluster, whose answers are a test's."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.runners.cli.test_cli import TINY, write
from tests.runners.launching.test_launch import hand_out
from vitinit.benchmark.grids import grid
from vitinit.benchmark.records.store import Store
from vitinit.runners.basics.setting import Execution, Setting
from vitinit.runners.launching import cluster, jobs
from vitinit.runners.one_run.outcome import failure

pytestmark = pytest.mark.usefixtures("undisturbed")
DRY = ("run", "smoke", "--dry-run")
UP = 'case "$1" in ping) echo "Slurmctld(primary) at head is UP";; *) echo "MaxArraySize = 4";; esac'


@pytest.fixture(autouse=True)
def outside_of_a_job(monkeypatch):
    for name in ("SLURM_JOB_ID", "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID", "VITINIT_PROFILE"):
        monkeypatch.delenv(name, raising=False)


def options(printed: str) -> dict[str, str]:
    """Read the lines for sbatch of a script that was printed."""
    return dict(re.findall(r"^#SBATCH --([a-z-]+)(?:=(.*))?$", printed, re.MULTILINE))


def test_a_dry_run_goes_by_the_profile_and_the_place(vitinit, cluster_says, monkeypatch):
    cluster_says(sbatch="exit 1", scontrol=UP)
    Path("mine.yaml").write_text("account: 0123\ngpus: 1\ngpu_option: gpus\nruns_per_job: 3\nsetup: module load cuda\n")
    code, out, err = vitinit(*DRY, "--profile", "mine.yaml")
    assert (code, err) == (0, "")
    assert "6 runs in 2 jobs of up to 3 on cuda; profile mine\n" in out
    assert {"account": "0123", "gpus": "1", "array": "0-1%2", "job-name": "smoke"}.items() <= options(out).items()
    assert not Path("results").exists()
    assert options(vitinit(*DRY, "--executor", "local")[1]) == {}
    monkeypatch.setenv("VITINIT_PROFILE", "single-node")
    assert options(vitinit(*DRY)[1])["partition"] == "main"
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    assert options(vitinit(*DRY)[1]) == {}, "inside of a job runs are carried out there"


def test_runs_of_a_cluster_that_does_not_answer_are_left(tmp_path, vitinit, cluster_says, monkeypatch):
    path = write(tmp_path / "tiny.yaml", TINY)
    hand_out(Path("results/local"), "2026-01-01", "tiny", job_7=[grid.load(path).cells[0].run_id])
    cluster_says(squeue="echo Unable to contact slurm controller >&2; exit 1")
    said = "queued, 1 run: was handed out as job 7; squeue: "
    gone = "(if that cluster is gone for good, remove results/local/tiny/jobs)\n"
    assert f"{said}Unable to contact slurm controller {gone}" in vitinit("status", path)[1]
    monkeypatch.setenv("PATH", "/nowhere")
    code, out, err = vitinit("run", path, "--executor", "inline", "--only", "row=Kaiming*")
    assert f"{said}No such file or directory" in out, out + err
    assert (code, out.splitlines()[-1]) == (0, "nothing to do: 1 run: 1 queued")
    assert Store("results/local").read("tiny").done == {}


def test_a_run_is_handed_over_once_with_a_copy_of_the_code_and_followed_to_its_end(
    tmp_path, vitinit, cluster_says, monkeypatch
):
    monkeypatch.setattr(cluster, "LOOK_S", 0)
    path = write(tmp_path / "tiny.yaml", TINY)
    cluster_says(sbatch="echo Submitted batch job 7", scontrol=UP, squeue="echo >> looks", sacct="true")
    run = ("run", path, "--executor", "slurm", "--only", "row=Mimetic")
    code, out, err = vitinit(*run, "--wait")
    looks = Path("looks").read_text()
    (handed,) = jobs.look(Path("results/local"), "tiny")
    logs = handed.folder.absolute()
    assert f"handed to SLURM: job 7; logs: {logs}\nsee: vitinit status, vitinit slurm cancel\n" in out
    assert "stopped, job 7 has gone, and the cluster does not say how" in out
    assert (code, looks) == (1, "\n\n"), err
    (cell,) = (cell for cell in grid.load(path).cells if cell.row == "Mimetic")
    assert (handed.job_id, handed.run_ids) == ("7", (cell.run_id,))
    assert (handed.folder / "code/vitinit/runners/launching/cluster.py").exists()
    cluster_says(squeue=f"echo '7|PENDING|1:00||{handed.name}|Priority'", sbatch="echo Submitted batch job 8")
    code, out, err = vitinit(*run)
    assert (code, "job 8" in out, "nothing to do: 1 run: 1 queued" in out) == (0, False, True), out + err
    cluster_says(squeue="true", sacct=f"echo '7|FAILED|1:0|{handed.name}'", scancel="exit 1")
    assert "to do, 1 run: job 7 ended: FAILED, exit code 1:0" in vitinit("status", path)[1]
    assert "no job of it is left to cancel" in vitinit("slurm", "cancel", path)[1]
    failed = failure(cell, Setting(tmp_path, "tiny", tmp_path, Execution("cpu", 1, "slurm"), {}), "OSError", "no disk")
    record = Store("elsewhere").write(failed)
    pending = f"echo '7|PENDING|1:00||{handed.name}|Priority'"
    cluster_says(squeue=f"[ -e asked ] && cp {record} results/local/tiny; touch asked; {pending}")
    code, out, err = vitinit(*run, "--wait")
    assert (code, "failed, OSError: no disk" in out) == (1, True), out + err


def test_of_a_submission_that_is_refused_in_part_no_job_is_left(tmp_path, vitinit, cluster_says):
    path = write(tmp_path / "tiny.yaml", TINY)
    once = "[ -e asked ] && echo 'sbatch: error: QOSMaxSubmitJobPerUserLimit' >&2 && exit 1; touch asked"
    cluster_says(sbatch=f"{once}; echo Submitted batch job 7", scontrol=UP, squeue="true", scancel='echo "$@" > gone')
    code, _, err = vitinit("run", path, "--executor", "slurm", "--seeds", "0-2", "--workers", "1")
    said = "sbatch: error: QOSMaxSubmitJobPerUserLimit (after 4 of 6 jobs, now cancelled)"
    assert (code, err) == (2, f"error: {said}\n")
    assert Path("gone").read_text() == "7_0 7_1 7_2 7_3\n"
    assert jobs.look(Path("results/local"), "tiny") == []
