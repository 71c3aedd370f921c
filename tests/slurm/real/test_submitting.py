"""Submitting to a real SLURM: everything runs, with the code as it was, within the limits asked for."""

import importlib
import shutil

import calls
import pytest

from tests.processes import until
from vitinit.slurm import jobs

pytestmark = pytest.mark.slurm


def test_an_array_runs_every_argument(slurm, work):
    job_ids = work.submit(calls.stamp, range(5))
    work.wait()
    assert {int(name): text.split()[0] for name, text in work.written().items()} == dict(enumerate(job_ids))
    assert len({job_id.partition("_")[0] for job_id in job_ids}) == 1


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
    assert work.queued()[job_id].reason == "JobHeldUser"
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
