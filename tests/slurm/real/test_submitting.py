"""Submitting to a real SLURM: everything runs, with the code as it was, within the limits asked for."""

import importlib
import shutil

import calls
import pytest

from tests.processes import until
from vitinit.slurm import jobs

pytestmark = pytest.mark.slurm


def overlap(spans: list[tuple[float, float]]) -> int:
    """The most spans that hold at one time."""
    return max(sum(start <= moment < end for start, end in spans) for moment, _ in spans)


def ran(work) -> tuple[dict[int, str], list[tuple[float, float]]]:
    rows = {int(name): text.split() for name, text in work.written().items()}
    return {name: row[0] for name, row in rows.items()}, [(float(row[1]), float(row[2])) for row in rows.values()]


def test_arrays_run_every_argument_and_no_more_at_a_time_than_asked_for(slurm, work):
    assert "MaxArraySize            = 6" in slurm.run("scontrol", "show", "config")
    job_ids = work.submit(calls.meet, range(8), parallel=2)
    work.wait()
    told_by_jobs, spans = ran(work)
    assert told_by_jobs == dict(enumerate(job_ids))
    assert len({job_id.partition("_")[0] for job_id in job_ids}) == 2
    assert overlap(spans) == 2


def test_later_edits_of_the_code_do_not_reach_a_queued_job(slurm, work, tmp_path, monkeypatch):
    live = tmp_path / "live"
    live.mkdir()
    module = live / "edited_later.py"
    module.write_text("def which(given):\n    (given[0] / 'version').write_text('as submitted')\n")
    shutil.copy(module, work.code)
    monkeypatch.chdir(live)
    monkeypatch.setenv("PYTHONPATH", str(live), prepend=":")
    monkeypatch.syspath_prepend(live)
    [job_id] = work.submit(importlib.import_module("edited_later").which, [0], sbatch={"hold": "true"})
    assert jobs.queued([job_id])[job_id].reason == "JobHeldUser"
    module.write_text(module.read_text().replace("as submitted", "edited later"))
    slurm.run("scontrol", "release", job_id)
    work.wait()
    assert work.written() == {"version": "as submitted"}


def test_every_process_makes_the_call_with_setup_environment_and_gpus_and_one_that_fails_ends_its_job(slurm, work):
    [both] = work.submit(calls.rank, [0], processes=2, cpus=2)
    [failing] = work.submit(calls.rank_1_fails, [0], processes=2)
    work.submit(
        calls.environment,
        [0],
        gpus=1,
        gpu_type="fake",
        setup=("export FROM_SETUP=1 GREETING=old", "cd /"),
        environment={"GREETING": "hello 'you' $HOME"},
    )
    work.wait()
    written = {name: text for name, text in work.written().items() if "started" not in name}
    assert written == {"0": "2 2", "1": "2 2", "environment": "hello 'you' $HOME 1 0"}
    assert len(work.log(both)) > 0
    until(lambda: "FAILED" in [how.state for how in jobs.ended([failing]).values()])
    assert "rank 1 has had enough" in work.log(failing)
