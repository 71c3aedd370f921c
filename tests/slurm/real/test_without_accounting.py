"""A SLURM without accounting: the controller alone says what became of jobs, for a while; it preempts by SIGTERM."""

import pytest
from single_node import single_node
from studies import accidents_one_after_the_other

pytestmark = pytest.mark.slurm


def test_the_same_command_repairs_what_accidents_have_left(study, left_alone):
    with single_node(ACCT="none", PREEMPT_SIGNAL="term") as bare:
        accidents_one_after_the_other(bare, study, left_alone, "has gone")
