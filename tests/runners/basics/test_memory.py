"""Messages that mean: no memory now, perhaps later."""

from pathlib import Path

import pytest
import torch
import yaml

from vitinit.benchmark.grids import grid
from vitinit.runners.basics.gpu import out_of_memory, runs_at_once

SAID = yaml.safe_load(Path(__file__).with_name("memory.yaml").read_bytes())


@pytest.mark.parametrize("said", SAID["memory"])
def test_messages_of_cuda_and_of_the_cpu(said):
    assert out_of_memory(RuntimeError(said))
    assert not out_of_memory(ValueError(said)), "it is not said by a device"


@pytest.mark.parametrize("said", SAID["other"])
def test_other_errors(said):
    assert not out_of_memory(RuntimeError(said))
    assert out_of_memory(torch.OutOfMemoryError(said))


def test_small_models_share_a_gpu_as_memory_and_cores_allow_and_a_large_one_has_it_to_itself():
    small, large = (grid.load(name).cells[0].spec for name in ("small", "table2"))
    assert [runs_at_once(small, 2**37, cores) for cores in (16, 2, 0)] == [12, 2, 1]
    assert 1 < runs_at_once(small, 2**32, 16) < 4, "each process takes 1 GiB and what its model needs"
    assert runs_at_once(large, 2**37, 16) == 1
