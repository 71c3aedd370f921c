"""A SLURM without accounting: the controller alone says what became of jobs, for a while; it preempts by SIGTERM."""

from collections.abc import Iterator

import calls
import pytest
from single_node import SingleNode, single_node, until
from studies import accidents_one_after_the_other

from vitinit.slurm import jobs
from vitinit.slurm.check import check
from vitinit.slurm.profiles import Profile

pytestmark = pytest.mark.slurm


@pytest.fixture(scope="module")
def bare() -> Iterator[SingleNode]:
    with single_node(ACCT="none", PREEMPT_SIGNAL="term") as node:
        yield node


def test_states_and_accounts(bare, work):
    done, failed = work.submit(calls.stamp, [0]), work.submit(calls.fail, range(2))
    cancelled = work.submit(calls.wait, range(3), sbatch={"hold": True})
    until(lambda: not jobs.queued([*done, *failed]))
    assert jobs.queued(work.job_ids).keys() == set(cancelled)
    bare.run("scancel", cancelled[0].partition("_")[0])
    states = {job: how.state for job, how in jobs.ended([*work.job_ids, "999999"]).items()}
    assert states == {done[0]: "COMPLETED"} | dict.fromkeys(failed, "FAILED") | dict.fromkeys(cancelled, "CANCELLED")
    assert jobs.ended(["999999"]) == {}
    assert check(Profile(account="mine")) == []  # no accounts: for sbatch to judge


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


def test_a_preempted_job_asks_for_another_go(bare, work):
    assert make_way(work) == "SIGTERM preempted: True"


def test_the_same_command_repairs_what_accidents_have_left(bare, study, left_alone):
    accidents_one_after_the_other(bare, study, left_alone, "ended: (CANCELLED|FAILED|NODE_FAIL)|has gone")


@pytest.mark.parametrize("node_settings", [{"ACCT": "none", "KILL_WAIT": "300"}])
def test_the_requeued_job_is_ended_while_it_asks(node, work):
    """Told by the signal asked for. SLURM ends all processes of the job, the one that asks among them."""
    assert make_way(work, calls.requeue_with_slow_answers) == "SIGUSR2 preempted: True"
