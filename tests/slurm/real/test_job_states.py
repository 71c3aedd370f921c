"""States and ends of jobs, asked of a real SLURM with accounting."""

import calls
import pytest

from tests.processes import until
from vitinit.slurm import jobs

pytestmark = pytest.mark.slurm


def states(*job_ids: str) -> dict[str, str]:
    return {job_id: how.state for job_id, how in jobs.ended(job_ids).items()}


def test_jobs_that_wait_run_fail_and_are_cancelled(slurm, work):
    [running] = work.submit(calls.wait, ["running"], time=4)
    [failed] = work.submit(calls.fail, ["anything"])
    held = work.submit(calls.wait, ["held"] * 3, sbatch={"hold": "true"})
    dropped = work.submit(calls.wait, ["dropped"] * 2, sbatch={"hold": "true"})
    until(lambda: "running-started" in work.written() and failed not in work.queued())

    found = work.queued()
    assert {job: (how.state, how.reason) for job, how in found.items() if job not in dropped} == {
        running: ("RUNNING", "None"),
        **dict.fromkeys(held, ("PENDING", "JobHeldUser")),
    }
    assert found[running].nodes == slurm.run("hostname", "-s").strip()
    until(lambda: jobs.ended([running, failed, "999999"]).keys() == {failed})  # the accounting hears of it later

    jobs.cancel([running, held[1], *dropped])
    until(lambda: work.queued().keys() == {held[0], held[2]})
    jobs.cancel([running, held[1], failed, "999999"])  # all over: nothing happens
    until(lambda: states(running, failed) == {running: "CANCELLED", failed: "FAILED"})
    assert jobs.ended([failed])[failed].exit_code == "1:0"
    assert "cannot do anything" in work.log(failed)


def test_limits(slurm, work):
    """A job is told half a minute before its limit, or up to a minute sooner than that."""
    [told] = work.submit(calls.requeue_when_told, ["told"], time=2, signal_seconds=30)
    [deaf] = work.submit(calls.wait_deaf, ["deaf"], time=1, signal_seconds=10)
    until(lambda: "told-requeued" in work.written())
    written = work.written()
    assert written["told-told"].split()[0] == "SIGUSR2"
    assert written["told-requeued"] == "True"
    work.wait()
    assert "told-started-1" in work.written()
    until(lambda: states(told, deaf) == {told: "COMPLETED", deaf: "TIMEOUT"})


def test_a_job_may_ask_for_another_go_but_not_once_it_is_cancelled(slurm, work):
    [again, cancelled] = work.submit(calls.requeue_when_told, ["again", "cancelled"])
    until(lambda: {"again-started-0", "cancelled-started-0"} <= work.written().keys())
    slurm.run("scancel", "--signal=USR2", again)
    jobs.cancel([cancelled])
    until(lambda: {"again-requeued", "cancelled-requeued"} <= work.written().keys())
    assert work.written()["again-requeued"] == "True"
    assert work.written()["cancelled-requeued"] == "False"
    assert work.written()["cancelled-told"].startswith("SIGTERM")
    until(lambda: work.queued()[again].state == "PENDING")
    work.wait()
    assert "again-started-1" in work.written()
    until(lambda: states(again, cancelled) == {again: "COMPLETED", cancelled: "CANCELLED"})
