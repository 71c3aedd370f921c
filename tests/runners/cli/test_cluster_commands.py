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
    assert "6 runs in 2 jobs of up to 3 on cuda; profile mine: " in out
    assert {"account": "0123", "gpus": "1", "array": "0-1%2", "job-name": "smoke"}.items() <= options(out).items()
    script = out[out.index("#!") :]
    assert subprocess.run(["bash", "-n"], input=script, text=True).returncode == 0
    assert not Path("results").exists()
    assert options(vitinit(*DRY, "--executor", "local")[1]) == {}
    monkeypatch.setenv("VITINIT_PROFILE", "single-node")
    assert options(vitinit(*DRY)[1])["partition"] == "main"
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    assert options(vitinit(*DRY)[1]) == {}, "inside of a job runs are carried out there"


def test_runs_of_a_cluster_that_does_not_answer_are_left_and_can_be_forced(tmp_path, vitinit, monkeypatch):
    path = write(tmp_path / "tiny.yaml", changed(blocks__0__recipe__epochs=1))
    first, second, *_ = (cell.run_id for cell in grid.load(path).cells)
    hand_out(Path("results/local"), "2026-01-01", "tiny", job_7=[first, second])
    monkeypatch.setenv("PATH", "/nowhere")
    run = ("run", path, "--executor", "inline", "--no-probes")
    code, out, err = vitinit(*run)
    said = "queued, 2 runs: was handed out as job 7; cannot ask: there is no squeue here"
    assert (code, said in out, "or --force RUN_ID" in out) == (0, True, True), err
    assert Store("results/local").read("tiny").done == {}
    assert vitinit(*run, "--force", first)[0] == 0
    assert Store("results/local").read("tiny").done.keys() == {first}


def test_a_forced_run_is_handed_over_once_and_its_record_put_aside(tmp_path, vitinit, cluster_says):
    path = write(tmp_path / "tiny.yaml", changed(blocks__0__recipe__epochs=1))
    assert vitinit("run", path, "--executor", "inline", "--no-probes")[0] == 0
    cluster_says(sbatch="echo Submitted batch job 7", scontrol=UP, squeue="true", sacct="true")
    run_id, *_ = Store("results/local").read("tiny").done
    assert "nothing to do: 2 runs: 2 done" in vitinit("run", path, "--executor", "slurm")[1]
    code, out, err = vitinit("run", path, "--executor", "slurm", "--force", run_id)
    assert (code, "handed to SLURM: job 7" in out) == (0, True), out + err
    ((folder, dispatched),) = jobs.dispatches(Path("results/local"), "tiny")
    assert [list(ids) for ids in dispatched.jobs.values()] == [[run_id]]
    assert (folder / "code/vitinit/runners/launching/cluster.py").exists()
    assert run_id not in Store("results/local").read("tiny").done
    assert len(list(Path("results/local/tiny").glob(f"{run_id}.json.superseded-*"))) == 1
    cluster_says(squeue=f"echo '7|PENDING|1:00||{dispatched.name}|Priority'", sbatch="echo Submitted batch job 8")
    code, out, err = vitinit("run", path, "--executor", "slurm", "--force", run_id)
    assert (code, "job 8" in out, "1 queued" in out) == (0, False, True), out + err


def test_the_logs_of_a_runs_last_job_are_found_by_the_first_digits_of_the_run(vitinit, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    results = Path("results/local")
    hand_out(results, "2026-01-01", job_7=["ab12"])
    folder = hand_out(results, "2026-01-02", job_12_0=["ab12", "cd34"], job_12_1=["ab99"])
    for rank in (0, 1):
        (folder / f"12_0_{rank}_log.out").write_text(f"of \x1b[31mrank\x1b[0m {rank}\n")
    (folder / "12_1_0_log.out").write_text("of another job\n")
    code, out, err = vitinit("slurm", "logs", "ab1")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "run ab12, job 12_0"
    assert [line.rpartition("/")[2] for line in lines if "log.out" in line] == ["12_0_0_log.out", "12_0_1_log.out"]
    assert not {"\x1b", "another"} & set(re.findall(r"\x1b|\w+", out))
    assert vitinit("slurm", "logs", "ab")[2] == "error: run ab: several runs begin like this: ab12, ab99\n"
