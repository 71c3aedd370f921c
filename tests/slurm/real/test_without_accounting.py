"""A SLURM without accounting: the controller alone says what became of jobs, for a while; it preempts by SIGTERM."""

from collections.abc import Iterator

import calls
import pytest
from single_node import SingleNode, single_node
from studies import accidents_one_after_the_other

from tests.processes import until

pytestmark = pytest.mark.slurm


@pytest.fixture(scope="module")
def bare() -> Iterator[SingleNode]:
    with single_node(ACCT="none", PREEMPT_SIGNAL="term") as node:
        yield node


def test_a_preempted_job_asks_for_another_go(bare, work):
    [job_id] = work.submit(calls.requeue_when_told, ["low"])
    until(lambda: "low-started-0" in work.written())
    work.submit(calls.stamp, [0], partition="high", cpus=4)
    until(lambda: "low-requeued" in work.written())
    assert work.written()["low-requeued"] == "True"
    until(lambda: work.queued()[job_id].state == "PENDING")
    work.wait()
    written = work.written()
    assert float(written["0"].split()[2]) < float(written["low-started-1"])
    assert (written["low-told"].split()[0], written["low-preempted"]) == ("SIGTERM", "True")


def test_the_same_command_repairs_what_accidents_have_left(bare, study, left_alone):
    accidents_one_after_the_other(bare, study, left_alone, "has gone")
