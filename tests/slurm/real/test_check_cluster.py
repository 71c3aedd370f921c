"""check() on a real SLURM: a good profile passes, a bad one is refused in the cluster's own words."""

import pytest

from vitinit.slurm.profiles import Profile, load
from vitinit.slurm.submit import check

pytestmark = pytest.mark.slurm


def test_profiles(slurm):
    assert check(Profile()) == []
    assert check(load("single-node")) == []
    assert check(Profile(partition="high", gpus=2, gpu_type="fake", memory="1G", account="root", qos="normal")) == []
    bad = {
        "invalid partition": {"partition": "gpu"},
        "unrecognized option '--frob'": {"sbatch": {"frob": "true"}},
        "Invalid node name": {"sbatch": {"exclude": "nowhere"}},
        "setup: not valid shell: bash: line 3: syntax error": {"setup": ("if true", "then")},
    }
    for message, fields in bad.items():
        [said] = check(Profile(**fields))
        assert message in said
    assert "check" not in slurm.run("squeue", "--noheader", "--states=all", "--format=%j"), "it queues nothing"
