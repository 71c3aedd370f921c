"""Preempted jobs of clusters that send the signal a job asked for, and of those that send SIGTERM."""

import calls
import pytest
from single_node import until

from slurm import jobs


def make_way(work, call=calls.requeue_when_told) -> str:
    [job_id] = work.submit(call, ["low"])
    until(lambda: "low-started-0" in work.written(), work.written)
    [urgent] = work.submit(calls.stamp, [0], partition="high", cpus=4)
    until(lambda: "low-requeued" in work.written(), work.written)
    assert work.written()["low-requeued"] == "True"
    until(lambda: jobs.queued([job_id])[job_id].state == "PENDING")
    work.wait()
    written = work.written()
    assert jobs.ended([job_id, urgent]).keys() == {job_id, urgent}
    assert {how.state for how in jobs.ended([job_id, urgent]).values()} == {"COMPLETED"}
    assert float(written["0"].split()[2]) < float(written["low-started-1"])
    return f"{written['low-told'].split()[0]} preempted: {written['low-preempted']}"


def test_the_signal_asked_for(slurm, work):
    assert make_way(work) == "SIGUSR2 preempted: True"


@pytest.mark.parametrize("node_settings", [{"ACCT": "none", "KILL_WAIT": "300"}])
def test_the_requeued_job_is_ended_while_it_asks(node, work):
    """SLURM ends all processes of the job, the one that asks among them."""
    assert make_way(work, calls.requeue_with_slow_answers) == "SIGUSR2 preempted: True"


@pytest.mark.parametrize("node_settings", [{"ACCT": "none", "PREEMPT_SIGNAL": "term"}])
def test_sigterm(node, work):
    assert make_way(work) == "SIGTERM preempted: True"
