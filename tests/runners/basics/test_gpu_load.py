"""Load of a GPU: read from a stand-in for NVIDIA's library, averaged for the record, shown in the claim."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace

import pytest
import torch

from tests.faults.harness import cell_of, setting
from tests.pretended_gpu import CPU, GPU, pretended_gpu
from vitinit.benchmark.records.record import RunRecord
from vitinit.runners.basics import gpu_load
from vitinit.runners.basics.setting import Execution
from vitinit.runners.basics.stop import Stop
from vitinit.runners.one_run import claims
from vitinit.runners.one_run.carry_out import carry_out


class Library:
    """NVML of a machine with one GPU, which is busier each time."""

    def __init__(self, code: int = 0) -> None:
        self.code, self.times = code, 0

    def nvmlInit_v2(self) -> int:
        return 0

    def nvmlDeviceGetHandleByUUID(self, uuid: bytes, handle: object) -> int:
        return 0 if uuid == b"GPU-12-34" else 6

    def nvmlDeviceGetUtilizationRates(self, handle: object, shares: object) -> int:
        self.times += 1
        shares._obj[0], shares._obj[1] = 40 + self.times, 7
        return self.code


@pytest.fixture
def library(monkeypatch):
    found, others = Library(), ctypes.CDLL
    monkeypatch.setattr(ctypes, "CDLL", lambda name: found if name == "libnvidia-ml.so.1" else others(name))
    with pretended_gpu():
        yield found


def test_samples_are_averaged_and_the_last_one_is_shown(library):
    load = gpu_load.Load(GPU, gpu_load.utilisation(GPU))
    assert load.mean == {}
    load.sample()
    load.sample()
    assert load.describe() == "GPU 43% busy, 40.0 of 64.0 GiB"
    library.code = 15  # the GPU is lost
    load.sample()
    assert load.mean == {"busy_percent": 42}


def test_where_it_cannot_be_read_there_is_none(library, monkeypatch):
    assert gpu_load.utilisation(CPU) is None
    assert gpu_load.Load(CPU, None).describe() == ""
    with monkeypatch.context() as patch:
        patch.setattr(torch.cuda, "get_device_properties", lambda device=None: SimpleNamespace(uuid="another"))
        assert gpu_load.utilisation(GPU) is None

    def missing(name: str) -> None:
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", missing)
    assert gpu_load.utilisation(GPU) is None
    assert gpu_load.Load(GPU, None).describe() == "GPU with 40.0 of 64.0 GiB in use"


@pytest.fixture
def cell(tmp_path):
    """A run that is planned where there is no GPU: the plan asks about a model without values."""
    return cell_of("mimetic", tmp_path)


@pytest.mark.long
def test_a_run_tells_its_load_while_it_trains_and_records_it(cell, library, monkeypatch, tmp_path):
    monkeypatch.setattr(gpu_load, "SAMPLE_S", 0.001)
    where, shown = setting(tmp_path, execution=Execution("cuda", 1, "inline")), []
    folder = claims.folder(where.root, where.study, cell.run_id)
    record = carry_out(
        cell, where, Stop(), lambda event: shown.append(claims.live(folder).describe()) if event.epoch else None
    )
    assert isinstance(record, RunRecord), record
    assert all(line.endswith("% busy, 40.0 of 64.0 GiB") for line in shown), shown
    assert len(shown) == 2
    assert 41 <= record.environment["gpu_usage"]["busy_percent"] <= 40 + library.times
