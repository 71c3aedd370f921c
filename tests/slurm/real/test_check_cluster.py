"""check() on a real SLURM: a good profile passes, each kind of bad one is named."""

import pytest

from vitinit.slurm.check import check
from vitinit.slurm.profiles import Profile, load

pytestmark = pytest.mark.slurm


def test_good_profiles(slurm):
    assert check(Profile()) == []
    assert check(load("single-node")) == []
    assert check(Profile(partition="high", gpus=2, gpu_type="fake", memory="1G", account="root", qos="normal")) == []


BAD = {
    "partition: no 'gpu'; available: high, main": {"partition": "gpu"},
    "time: 2-00:01:00 is over the limit of partition 'main', 2-00:00:00": {"time": "2-00:01:00"},
    "nodes: 2 is more than the 1 of partition 'high'": {"partition": "high", "nodes": 2},
    "cpus: 2 processes x 3 is more than any node of partition 'main' has, 4": {"processes": 2, "cpus": 3},
    "gpus: 3 is more than any node of partition 'main' has, 2": {"gpus": 3, "cpus": 1},
    "gpu_type: no node of partition 'main' has 'a100'; available: fake": {"gpus": 1, "gpu_type": "a100"},
    "account: no 'mine'; available: root": {"account": "mine"},
    "qos: no 'urgent'; available: normal": {"qos": "urgent"},
    "constraint: no node has 'a100'; available: none": {"constraint": "a100"},
    "setup: not valid shell: bash: line 3: syntax error: unexpected end of file": {"setup": ("if true", "then")},
    "sbatch: unrecognized option '--frob' Try \"sbatch --help\" for more information": {"sbatch": {"frob": True}},
    "allocation failure: Invalid node name specified": {"sbatch": {"exclude": "nowhere"}},
}


def test_bad_profiles(slurm):
    for message, fields in BAD.items():
        assert check(Profile(**fields)) == [message]
    [message] = check(Profile(memory="1000T"))
    assert message.startswith("memory: 1000T is more than any node of partition 'main' has, ")
    assert len(check(Profile(partition="gpu", account="mine", setup=("fi",)))) == 3, "all at once"
    assert "check" not in slurm.run("squeue", "--noheader", "--states=all", "--format=%j"), "it queues nothing"


def test_no_cluster(slurm, monkeypatch):
    monkeypatch.setenv("SLURM_CONF", "/nowhere/slurm.conf")
    assert check(Profile()) == ["no cluster: there is no sbatch on the PATH, or its controller does not answer"]
