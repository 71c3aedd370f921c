"""Where `vitinit run` carries runs out, and what it and `vitinit slurm` say of jobs; SLURM's answers are a test's."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.runners.cli.test_cli import changed, write
from tests.runners.launching.test_launch import hand_out
from vitinit.benchmark.grids import grid
from vitinit.benchmark.records.store import Store
from vitinit.benchmark.terminal import Terminal
from vitinit.runners.basics import machine
from vitinit.runners.basics.setting import Execution, Setting
from vitinit.runners.basics.stop import Stop
from vitinit.runners.launching import cluster, jobs
from vitinit.runners.launching import launch as run
from vitinit.runners.launching.choose import planned_of
from vitinit.runners.launching.execute import execute
from vitinit.runners.one_run import claims
from vitinit.runners.terminal.display import Display
from vitinit.runners.training import train
from vitinit.slurm import profiles

pytestmark = pytest.mark.usefixtures("undisturbed")
DRY = ("run", "smoke", "--dry-run")
UP = 'case "$1" in ping) echo "Slurmctld(primary) at head is UP";; *) echo "MaxArraySize = 4";; esac'
DOWN = 'echo "Slurmctld(primary) at head is DOWN"'


@pytest.fixture(autouse=True)
def outside_of_a_job(monkeypatch):
    for name in ("SLURM_JOB_ID", "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID", "VITINIT_PROFILE"):
        monkeypatch.delenv(name, raising=False)


def options(printed: str) -> dict[str, str]:
    """What a script that was printed says to sbatch."""
    return dict(re.findall(r"^#SBATCH --([a-z-]+)(?:=(.*))?$", printed, re.MULTILINE))


@pytest.mark.parametrize("words", [("--executor", "slurm", "--profile", "single-node"), ("--profile", "single-node")])
def test_a_dry_run_on_a_cluster_shows_runs_and_jobs_and_the_script(vitinit, cluster_says, words):
    cluster_says(sbatch="exit 1", scontrol=UP)
    code, out, err = vitinit(*DRY, *words)
    assert (code, err) == (0, "")
    assert "6 runs in 6 jobs of 1; profile single-node: cpus 1, time 60, partition main, parallel 2" in out
    assert "2 arrays of 3, 3 jobs, as the cluster takes no larger ones; the first:" in out
    told = {"partition": "main", "time": "60", "cpus-per-task": "1", "job-name": "smoke", "array": "0-2%1"}
    assert told.items() <= options(out).items()
    script = out[out.index("#!") :]
    assert subprocess.run(["bash", "-n"], input=script, text=True).returncode == 0
    assert not Path("results").exists()


def test_runs_are_shared_among_as_many_jobs_as_are_asked_for(vitinit, monkeypatch):
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    code, out, _ = vitinit(*DRY, "--executor", "slurm", "--runs-per-job", "4", "--workers", "2")
    assert code == 0
    assert "6 runs in 2 jobs of up to 3, 2 at once; profile default: " in out
    assert options(out)["array"] == "0-1%2"


def test_where_no_cluster_answers_runs_are_carried_out_here(vitinit, cluster_says):
    cluster_says(sbatch="exit 1", scontrol=DOWN)
    code, out, _ = vitinit(*DRY)
    assert (code, options(out)) == (0, {})
    assert "there is an sbatch, but no cluster answers: carrying the runs out here" in out
    assert "6 to do" in out


@pytest.mark.parametrize("why", ["there is no sbatch here", "no cluster answers here", "this is a job of it"])
def test_an_option_for_a_cluster_is_refused_with_why_none_is_used(vitinit, cluster_says, monkeypatch, why):
    if why == "there is no sbatch here":
        monkeypatch.setenv("PATH", "/nowhere")
    else:
        cluster_says(sbatch="exit 1", scontrol=DOWN)
    if why == "this is a job of it":
        monkeypatch.setenv("SLURM_JOB_ID", "7")
    for option in (("--profile", "single-node"), ("--runs-per-job", "3")):
        code, _, err = vitinit(*DRY, *option)
        said = f"{option[0]} is for the executor slurm, and the runs would be carried out by local, because {why}; "
        assert (code, f"{said}--executor slurm asks for it all the same\n" in err) == (2, True)
        assert "because" not in vitinit(*DRY, "--executor", "local", *option)[2], "that was asked for"


def test_inside_of_a_job_runs_are_carried_out_there_and_a_profile_of_the_environment_asks_for_no_cluster(
    vitinit, cluster_says, monkeypatch
):
    monkeypatch.setenv("VITINIT_PROFILE", "single-node")
    cluster_says(sbatch="exit 1", scontrol=UP)
    assert options(vitinit(*DRY)[1])["partition"] == "main"
    code, out, err = vitinit(*DRY, "--executor", "local")
    assert (code, err, options(out)) == (0, "", {})
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.delenv("VITINIT_PROFILE")
    code, out, err = vitinit(*DRY)
    assert (code, options(out), "6 to do" in out, "sbatch" in out) == (0, {}, True, False)


def test_runs_of_a_cluster_that_does_not_answer_are_said_and_can_be_forced(tmp_path, vitinit, monkeypatch):
    path = write(tmp_path / "tiny.yaml", changed(blocks__0__recipe__epochs=1))
    first, second, *_ = (cell.run_id for cell in grid.load(path).cells)
    study = Path("results/local/tiny")
    hand_out(study.parent, "2026-01-01", "tiny", job_7=[first, second])
    monkeypatch.setenv("PATH", "/nowhere")
    run = ("run", path, "--executor", "inline", "--no-probes")
    code, out, err = vitinit(*run)
    said = "2 runs left to a cluster that does not answer (was handed out as job 7; cannot ask: "
    assert (code, said in out, f"remove {study.absolute() / 'jobs'}, or --force RUN_ID" in out) == (0, True, True), err
    assert not {first, second} & Store("results/local").read("tiny").done.keys()
    code, out, err = vitinit(*run, "--force", first)
    assert (code, "1 run left to a cluster" in out) == (0, True), err
    assert {first, second} & Store("results/local").read("tiny").done.keys() == {first}


@pytest.mark.parametrize(
    ("driver", "cuda", "said"),
    [
        ("535.104.05", "13.2", "driver 535.104.05, torch .* needs CUDA 13.2. Run make setup CUDA=12, or update .* 580"),
        ("470.82.01", "13.2", "driver 470.82.01, .* 13.2. Update the driver to 580"),
        ("580.95.05", "13.2", "See nvidia-smi"),
        ("580.95.05", None, "is built without CUDA. Install a torch with CUDA"),
        (None, "13.2", "driver unknown, .* See nvidia-smi"),
    ],
)
def test_a_gpu_that_torch_does_not_see_is_not_passed_over(vitinit, tmp_path, monkeypatch, driver, cuda, said):
    (tmp_path / "nvidia0").touch()
    if driver:
        text = f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {driver}  Thu Oct 21 18:05:04 UTC 2021"
        (tmp_path / "driver").write_text(text + "\nGCC version: 9\n")
    monkeypatch.setattr(machine, "NVIDIA_GPU", str(tmp_path / "nvidia[0-9]*"))
    monkeypatch.setattr(machine, "DRIVER", tmp_path / "driver")
    monkeypatch.setattr(torch.version, "cuda", cuda)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    for words in ((), ("--device", "cuda")):
        code, out, err = vitinit(*DRY, "--executor", "local", *words)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert re.search(said, err), err
    assert vitinit(*DRY, "--executor", "local", "--device", "cpu")[0] == 0
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert vitinit(*DRY, "--executor", "local")[0] == 0, "hidden on purpose"


def test_what_compiling_for_a_gpu_lacks_is_said_before_anything_is_queued(vitinit, tmp_path, monkeypatch):
    """As triton looks for it: $CC, gcc or clang; then the headers of this Python."""
    tools, include = tmp_path / "bin", tmp_path / "include"
    for folder in (tools, include):
        folder.mkdir()
    monkeypatch.setenv("PATH", str(tools))
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(run, "default_device", lambda: "cuda")
    monkeypatch.setattr(machine.importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(machine.sysconfig, "get_paths", lambda: {"include": str(include)})
    words = ("--executor", "local", "--device", "cuda", "--compile", "--workers", "1")

    def said() -> str:
        code, _, err = vitinit(*DRY, *words)
        assert (code == 0) == (err == "")
        return err

    assert "neither gcc nor clang is on the PATH" in said()
    (tools / "clang").write_text("")
    (tools / "clang").chmod(0o755)
    assert f"{include}/Python.h is not here" in said()
    monkeypatch.setenv("CC", "icx")
    assert "'icx' is not on the PATH" in said()
    monkeypatch.delenv("CC")
    (include / "Python.h").touch()
    assert said() == ""
    monkeypatch.setattr(machine.importlib.util, "find_spec", lambda name: None)
    assert "triton" in said()
    profile = tmp_path / "gpus.yaml"
    for setup, warned in (("[]", True), ("[module load gcc]", False)):
        profile.write_text(f"gpus: 1\nsetup: {setup}\n")
        code, out, err = vitinit(*DRY, "--executor", "slurm", "--profile", str(profile), "--compile")
        assert (code, "where the jobs run it must be" in out) == (0, warned), out + err


def test_runs_at_once_are_as_many_as_gpus_or_as_share_them(monkeypatch):
    monkeypatch.setattr(run, "gpu_slots", lambda: ["0", "1", "2"])
    monkeypatch.setattr(run, "cores", lambda: 7)
    assert (run.default_workers("cpu", None), run.default_workers("cuda", None)) == (7, 3)
    assert run.default_workers("cuda", None, per_gpu=2) == 6
    for processes, each, at_once in ((1, 1, 4), (1, 3, 12), (4, 1, 1)):
        assert run.default_workers("cuda", profiles.Profile(gpus=4, processes=processes), each) == at_once


@pytest.mark.parametrize(
    ("asks", "hours"), [({"processes": 2, "cpus": 4}, "8.00 CPU-hours"), ({"gpus": 4, "nodes": 2}, "8.00 GPU-hours")]
)
def test_hours_are_those_of_all_processes_and_gpus_of_a_job(asks, hours):
    """Two runs of half an hour, a job each."""
    cells = grid.load("smoke").cells[:2]
    took = {cell.run_id: 1800.0 for cell in cells}
    said = run._estimated(profiles.Profile(**asks), [[cell] for cell in cells], took, "here", workers=1)
    assert f"about {hours}, the longest job 30 min 0 s (measured on here)" in said


def test_runs_that_share_gpus_are_at_once_in_a_job(vitinit, tmp_path):
    (tmp_path / "gpus.yaml").write_text("gpus: 2\nprocesses: 1\n")
    profile = str(tmp_path / "gpus.yaml")
    code, out, err = vitinit(*DRY, "--executor", "slurm", "--profile", profile, "--per-gpu", "2")
    assert (code, ", 4 at once; profile gpus" in out) == (0, True), out + err


@pytest.mark.skipif(torch.cuda.is_available(), reason="torch finds a CUDA GPU here")
def test_a_gpu_that_is_not_there_is_refused(vitinit):
    code, out, err = vitinit(*DRY, "--executor", "local", "--device", "cuda")
    assert (code, out, err) == (2, "", "error: --device cuda: torch finds no CUDA GPU here\n")


def test_the_logs_of_a_runs_last_job_are_found_by_the_first_digits_of_the_run(vitinit, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    results = Path("results/local")
    hand_out(results, "2026-01-01", job_7=["ab12"])
    folder = hand_out(results, "2026-01-02", job_12_0=["ab12", "cd34"], job_12_1=["ab99"])
    for rank, text in enumerate(("first\n" + 200 * "of rank 0\n", "of \x1b[31mrank\x1b[0m 1\n")):
        (folder / f"12_0_{rank}_log.out").write_text(text)
    (folder / "12_1_0_log.out").write_text("of another job\n")
    code, out, err = vitinit("slurm", "logs", "ab1")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "run ab12, job 12_0"
    assert [line.rpartition("/")[2] for line in lines if "log.out" in line] == ["12_0_0_log.out", "12_0_1_log.out"]
    assert lines.count("of rank 0") == 200
    assert "rank" in lines[-1]
    assert not {"\x1b", "first", "another"} & set(re.findall(r"\x1b|\w+", out))

    code, out, err = vitinit("slurm", "logs", "ab")
    assert (code, out, err) == (2, "", "error: run ab: several runs begin like this: ab12, ab99\n")
    assert vitinit("slurm", "logs", "ff")[2] == "error: run ff: was not handed to a cluster from results/local\n"
    hand_out(results, "2026-01-03", job_13=["cd34"])
    assert vitinit("slurm", "logs", "cd")[1] == "run cd34, job 13: nothing written yet\n"
    hand_out(results, "2026-01-04", "another", job_14=["cd34"])
    hand_out(results, "2026-01-02", "zz", job_15=["cd34"])
    assert vitinit("slurm", "logs", "cd")[1] == "run cd34, job 14: nothing written yet\n"


def test_brief_is_one_line_for_a_row_when_the_last_of_its_jobs_has_ended(tmp_path, vitinit, monkeypatch, capsys):
    """The runs are in jobs as far as the command knows, and recorded when it looks."""
    path = write(tmp_path / "tiny.yaml", changed(blocks__0__seeds=[0, 1], blocks__0__recipe__epochs=1))
    assert vitinit("run", path, "--executor", "inline", "--no-probes", "--only", "row=Kaiming*")[0] == 0
    loaded, store = grid.load(path), Store("results/local")
    planned, contents = planned_of(loaded, store, ["row=Kaiming*"], None)
    setting = Setting(store.root, loaded.name, tmp_path, Execution("cpu", 1, "slurm"), {})
    monkeypatch.setattr(cluster, "LOOK_S", 0.0)
    for brief in (True, False):
        with claims.held(tmp_path / "submitting", Stop()) as lock:
            jobs_of_others = cluster.Cluster([], profiles.load(None), 1, tmp_path, lock, wait=True)
            display = Display(Terminal(200), brief)
            tally = execute([item.cell for item in planned], setting, jobs_of_others, display)
        ended = [line for line in capsys.readouterr().out.splitlines() if "top-1" in line]
        assert (len(ended), tally.finished, tally.failed, tally.stopped) == (1 if brief else 2, 2, 0, 0)
        scores = [contents.done[item.cell.run_id].last.score for item in planned]
        if brief:
            assert f"Kaiming uniform, digits[100]: top-1 {sum(scores) / 2:.2f}% (mean of 2 seeds)" in ended[0]


def test_a_forced_run_is_handed_over_and_its_record_put_aside(tmp_path, vitinit, cluster_says):
    path = write(tmp_path / "tiny.yaml", changed(blocks__0__recipe__epochs=1))
    assert vitinit("run", path, "--executor", "inline", "--no-probes")[0] == 0
    cluster_says(sbatch="echo Submitted batch job 7", scontrol=UP, squeue="true", sacct="true")
    run_id, *others = Store("results/local").read("tiny").done
    here, there = (vitinit("run", path, "--executor", executor) for executor in ("inline", "slurm"))
    assert (here[0], here[1].split()) == (there[0], there[1].split())
    said = f"nothing to do: all {1 + len(others)} recorded\nnext: python -m vitinit.analysis.tables --study tiny\n"
    assert (there[0], said in there[1]) == (0, True)
    code, out, err = vitinit("run", path, "--executor", "slurm", "--force", run_id)
    assert (code, "handed to SLURM: job 7" in out) == (0, True), out + err
    (dispatched,) = (found for _, found in jobs.dispatches(Path("results/local"), "tiny"))
    assert [list(ids) for ids in dispatched.jobs.values()] == [[run_id]]
    assert run_id not in Store("results/local").read("tiny").done
    assert len(list(Path("results/local/tiny").glob(f"{run_id}.json.superseded-*"))) == 1
    cluster_says(squeue=f"echo '7|PENDING|1:00||{dispatched.name}|Priority'", sbatch="echo Submitted batch job 8")
    code, out, err = vitinit("run", path, "--executor", "slurm", "--force", run_id)
    assert (code, "job 8" in out) == (0, False), out + err
    nothing = f"nothing to do: {len(others)} recorded, 1 in jobs\n"
    assert f"{nothing}next: python -m vitinit.analysis.tables --study tiny\n" in out


def test_runs_of_a_job_may_save_for_as_long_as_its_signal_comes_before_its_end(
    tmp_path, vitinit, cluster_says, monkeypatch
):
    """Less half a minute, in which the job itself ends."""
    path = write(tmp_path / "tiny.yaml", changed(blocks__0__recipe__epochs=1))
    (tmp_path / "slow.yaml").write_text("signal_seconds: 300\n")
    cluster_says(sbatch="echo Submitted batch job 7", scontrol=UP, squeue="true", sacct="true")
    given, dispatch = [], cluster.dispatch
    monkeypatch.setattr(cluster, "dispatch", lambda packs, *rest: given.append(rest[0]) or dispatch(packs, *rest))
    code, out, err = vitinit("run", path, "--executor", "slurm", "--profile", str(tmp_path / "slow.yaml"))
    assert (code, [setting.grace_s for setting in given]) == (0, [270]), out + err


def test_few_frames_lie_between_the_command_and_a_step(tmp_path, vitinit, monkeypatch):
    optimize, frames = train.optimize, []

    def step(*arguments):
        frame = sys._getframe(1)
        while frame:
            frames.append((frame.f_globals.get("__name__"), frame.f_code.co_name))
            frame = frame.f_back
        monkeypatch.setattr(train, "optimize", optimize)
        return optimize(*arguments)

    monkeypatch.setattr(train, "optimize", step)
    path = write(tmp_path / "tiny.yaml", changed(blocks__0__recipe__epochs=1))
    assert vitinit("run", path, "--executor", "inline", "--no-probes", "--limit", "1")[0] == 0
    ours = [name for module, name in frames if str(module).startswith("vitinit.runners.")]
    assert ours[-1] == "main"
    assert len(ours[:-1]) + len(["optimize"]) <= 11, ours
