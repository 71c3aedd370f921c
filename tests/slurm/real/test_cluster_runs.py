"""Whole studies through a real SLURM: as arrays, preempted, out of time, cancelled, killed; none lost, none twice."""

import json
import os
import re
import shutil

import pytest
import yaml
from studies import GRID, Study, preemption, same_bits

from tests.held import HOLD
from tests.processes import PATIENCE, start, until
from vitinit.runners.launching.view import jobs_of

pytestmark = pytest.mark.slurm


def test_told_that_its_time_ends_it_saves_comes_back_and_ends_with_the_same_bits(slurm, tmp_path, left_alone):
    """Told by hand, as SLURM does it at the limit: so it comes in the middle of a run, however fast the machine is."""
    study = Study(tmp_path, GRID)
    study.hold.touch()
    study.submit()
    study.until_trained()
    slurm.run(f"scancel --signal=USR2 {' '.join(study.jobs())}")
    study.until_saved()
    study.hold.unlink()
    study.until_done()
    same_bits(study.records, left_alone)
    logs = [path.read_text() for path in (study.root / "study" / "jobs").glob("*/*_log.out")]
    assert any("stopped by SIGUSR2; what had begun is saved" in log for log in logs)
    assert sum(len(record.sessions) for record in study.records.values()) > 2


def test_many_tiny_runs_by_a_few_jobs_none_lost_and_none_twice(slurm, tmp_path):
    tiny = json.loads(json.dumps(GRID))
    tiny["blocks"][0] |= yaml.safe_load("""
        datasets: [{name: digits, train_size: 50}]
        model: {preset: vit_micro, image_size: 8, patch_size: 4, depth: 1, width: 16}
        recipe: {name: small, epochs: 1, warmup_epochs: 0}
        seeds: 0-44
    """)
    study = Study(tmp_path, tiny, jobs=6)  # there are four cores
    many = "run study.yaml --executor"
    text = study.vitinit(f"{many} auto", VITINIT_PROFILE="profile.yaml")
    assert "90 runs for 6 jobs on cpu, each of 10 min 0 s at most; profile profile" in text
    assert re.search(r"handed to SLURM: jobs \d+_0 to \d+_5", text)
    again = study.vitinit(f"{many} slurm --wait")
    assert "handed to SLURM" not in again
    assert re.search(r"\d+ runs finished, 0 failed", again)
    assert "to do" not in study.vitinit("plan study.yaml")
    assert "nothing to do: 90 runs: 90 done" in study.vitinit(f"{many} slurm")
    assert len(study.records) == 90
    record = next(iter(study.records.values()))
    assert record.execution["executor"] == "slurm"
    assert {len(record.sessions) for record in study.records.values()} == {1}
    (folder,) = jobs_of(study.root / "study").submissions.values()
    lines = "".join(path.read_text() for path in folder.glob("*_log.out")).splitlines()
    trained = [line.split()[-1] for line in lines if ": top-1 " in line]
    assert sorted(trained) == sorted(run_id[:8] for run_id in study.records)


def test_a_run_of_two_processes_in_a_job(slurm, tmp_path, left_alone):
    study = Study(tmp_path, GRID, processes=2)
    study.hold.touch()
    study.submit()
    preemption(slurm, study, study.until_trained()[1])
    study.until_saved()
    study.hold.unlink()
    study.until_done()
    for run_id, record in study.records.items():
        assert record.execution["processes"] == 2
        losses = [row.train_loss for row in record.history]
        assert losses[:3] == pytest.approx([row.train_loss for row in left_alone[run_id].history[:3]], rel=1e-2)
    assert max(len(record.sessions) for record in study.records.values()) == 2


def test_jobs_whose_launcher_was_killed_are_found_and_another_machine_may_join(slurm, tmp_path, left_alone):
    """Killed when sbatch has answered; the study is then carried out here, beside a job."""
    study, folder = Study(tmp_path, GRID), tmp_path / "bin"
    folder.mkdir()
    (folder / "sbatch").write_text(f'#!/bin/sh\n{shutil.which("sbatch")} "$@"\nkill -9 $PPID\n')
    (folder / "sbatch").chmod(0o755)
    study.hold.touch()
    study.submit(code=-9, PATH=f"{folder}:{os.environ['PATH']}")
    assert re.search("1 job (pending|running|completing)", study.vitinit("status study.yaml"))
    assert "cancelled 1 job" in study.vitinit("slurm cancel study.yaml")
    until(lambda: not study.jobs())
    study.submit()
    study.until_trained()
    process = start("run study.yaml --executor local --workers 1", study.folder, **{HOLD: str(study.hold)})
    until(lambda: len(study.live(1)) == 2, "a run of each", process)
    study.hold.unlink()
    assert "job running on" in process.communicate(timeout=PATIENCE)[0]
    study.until_done()
    same_bits(study.records, left_alone)
    assert {record.execution["executor"] for record in study.records.values()} == {"local", "slurm"}
