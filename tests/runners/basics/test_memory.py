"""Messages that mean: no memory now, perhaps later."""

import pytest
import torch

from vitinit.benchmark.grids import grid
from vitinit.runners.basics.gpu import out_of_memory, runs_at_once

SAID = (
    "CUDA error: all CUDA-capable devices are busy or unavailable\nCUDA kernel errors might be asynchronously reported",
    "CUDA error: CUDA-capable device(s) is/are busy or unavailable",
    "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
    "cuDNN error: CUDNN_STATUS_NOT_INITIALIZED",
    "GET was unable to find an engine to execute this computation",
    "Unable to find a valid cuDNN algorithm to run convolution",
    "CUDA error: MPS client failed to connect to the MPS control daemon or the MPS server",
    "CUDA error: out of memory",
    "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
    "[enforce fail at alloc_cpu.cpp:118] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate",
)


@pytest.mark.parametrize("said", SAID)
def test_messages_of_cuda_and_of_the_cpu(said):
    """As torch and CUDA's documentation have them."""
    assert out_of_memory(RuntimeError(said))
    assert not out_of_memory(ValueError(said)), "it is not said by a device"


@pytest.mark.parametrize("said", ["CUDA error: device-side assert triggered", "CUBLAS_STATUS_EXECUTION_FAILED", "no"])
def test_other_errors(said):
    assert not out_of_memory(RuntimeError(said))
    assert out_of_memory(torch.OutOfMemoryError(said))


def test_small_models_share_a_gpu_as_memory_and_cores_allow_and_a_large_one_has_it_to_itself():
    small, large = (grid.load(name).cells[0].spec for name in ("small", "table2"))
    assert [runs_at_once(small, 2**37, cores) for cores in (16, 2, 0)] == [12, 2, 1]
    assert 1 < runs_at_once(small, 2**32, 16) < 4, "each process takes 1 GiB and what its model needs"
    assert runs_at_once(large, 2**37, 16) == 1
