"""What became of jobs, asked of a real SLURM with accounting."""

import subprocess
import time

import calls
import pytest
from single_node import until

from vitinit.slurm import jobs
from vitinit.slurm.errors import SlurmError
from vitinit.slurm.profiles import seconds

pytestmark = pytest.mark.slurm


def test_jobs_that_wait_run_fail_and_are_cancelled(slurm, work):
    submitted = time.monotonic()
    [running] = work.submit(calls.wait, ["running"], time=4)
    [failed] = work.submit(calls.fail, ["anything"])
    held = work.submit(calls.wait, ["held"] * 3, sbatch={"hold": True})
    dropped = work.submit(calls.wait, ["dropped"] * 2, sbatch={"hold": True})
    until(lambda: "running-started" in work.written() and failed not in jobs.queued([failed]))

    found = jobs.queued([running, failed, *held, "999999"])
    assert found.keys() == {running, *held}
    assert (found[running].state, found[running].reason) == ("RUNNING", "None")
    assert found[running].nodes == slurm.run("hostname", "-s").strip()
    least = 240 - (time.monotonic() - submitted) - 2  # it began later; SLURM rounds
    assert least <= seconds(f"0-0:{found[running].time_left}") <= 240
    assert {(found[job].state, found[job].reason) for job in held} == {("PENDING", "JobHeldUser")}
    assert jobs.ended([running, failed, "999999"]).keys() == {failed}

    jobs.cancel([running, held[1], *dropped])
    until(lambda: jobs.queued(work.job_ids).keys() == {held[0], held[2]})
    jobs.cancel([running, held[1], failed, "999999"])  # all over: nothing happens
    states = {job: how.state for job, how in jobs.ended([running, failed, *held]).items()}
    assert states == {running: "CANCELLED", failed: "FAILED"}  # of held[1] SLURM keeps no trace
    assert jobs.ended([failed])[failed].exit_code == "1:0"
    assert "cannot do anything" in work.log(failed)


def test_limits_and_what_the_controller_forgets(slurm, work):
    """A job is told half a minute before its limit, or up to a minute sooner than that; MinJobAge is a minute too."""
    early = work.submit(calls.fail, range(2))
    pending = work.submit(calls.wait, range(3), sbatch={"hold": True})
    slurm.run("scancel", pending[0].partition("_")[0])
    early += pending
    until(lambda: jobs.ended(early).keys() == set(early))
    before = {job: (how.state, how.exit_code) for job, how in jobs.ended(early).items()}

    [told] = work.submit(calls.requeue_when_told, ["told"], time=2, signal_seconds=30)
    [deaf] = work.submit(calls.wait_deaf, ["deaf"], time=1, signal_seconds=10)
    until(lambda: "told-requeued" in work.written())
    written = work.written()
    assert written["told-told"].split()[0] == "SIGUSR2"
    assert written["told-requeued"] == "True"
    until(lambda: not jobs.queued([told, deaf]))
    assert "told-started-1" in work.written()
    assert {job: how.state for job, how in jobs.ended([told, deaf]).items()} == {told: "COMPLETED", deaf: "TIMEOUT"}

    until(lambda: not remembered(early[0]))
    assert {job: (how.state, how.exit_code) for job, how in jobs.ended(early).items()} == before


def remembered(job_id: str) -> bool:
    return not subprocess.run(["scontrol", "show", "job", job_id], capture_output=True).returncode


def test_a_job_may_ask_for_another_go_but_not_once_it_is_cancelled(slurm, work):
    [again, cancelled] = work.submit(calls.requeue_when_told, ["again", "cancelled"])
    until(lambda: {"again-started-0", "cancelled-started-0"} <= work.written().keys())
    slurm.run("scancel", "--signal=USR2", again)
    jobs.cancel([cancelled])
    until(lambda: {"again-requeued", "cancelled-requeued"} <= work.written().keys())
    assert work.written()["again-requeued"] == "True"
    assert work.written()["cancelled-requeued"] == "False"
    assert work.written()["cancelled-told"].startswith("SIGTERM")
    until(lambda: jobs.queued([again])[again].state == "PENDING")
    work.wait()
    assert "again-started-1" in work.written()
    assert {job: how.state for job, how in jobs.ended([again, cancelled]).items()} == {
        again: "COMPLETED",
        cancelled: "CANCELLED",
    }


def test_a_controller_that_does_not_answer_is_an_error_not_an_empty_queue(slurm, tmp_path, monkeypatch):
    conf = tmp_path / "slurm.conf"
    lines = slurm.conf.read_text().splitlines()
    conf.write_text("\n".join("SlurmctldPort=9" if line.startswith("SlurmctldPort") else line for line in lines))
    assert jobs.available()
    monkeypatch.setenv("SLURM_CONF", str(conf))
    assert not jobs.available()
    with pytest.raises(SlurmError, match="squeue: .*Unable to contact slurm controller"):
        jobs.queued(["1_0"])
