"""A SLURM without accounting: the controller alone says what became of jobs, for a while."""

import calls
import pytest
from single_node import until

from slurm import jobs
from slurm.check import check
from slurm.profiles import Profile


@pytest.mark.parametrize("node_settings", [{"ACCT": "none"}])
def test_states_and_accounts(node, work):
    done, failed = work.submit(calls.stamp, [0]), work.submit(calls.fail, range(2))
    cancelled = work.submit(calls.wait, range(3), sbatch={"hold": True})
    until(lambda: not jobs.queued([*done, *failed]))
    assert jobs.queued(work.job_ids).keys() == set(cancelled)
    node.run("scancel", cancelled[0].partition("_")[0])
    states = {job: how.state for job, how in jobs.ended([*work.job_ids, "999999"]).items()}
    assert states == {done[0]: "COMPLETED"} | dict.fromkeys(failed, "FAILED") | dict.fromkeys(cancelled, "CANCELLED")
    assert jobs.ended(["999999"]) == {}
    assert check(Profile(account="mine")) == []  # no accounts: for sbatch to judge
