"""Fixtures of the tests that train."""

import pytest
import torch

from tests.runners.small_run import THREAD, spec
from vitinit.benchmark.grids.schema import Cell
from vitinit.benchmark.records.store import Store
from vitinit.runners.basics.environment import code
from vitinit.runners.basics.setting import Execution, Setting, Stop
from vitinit.runners.one_run.carry_out import carry_out


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A run of this machine and this code."""
    root = tmp_path_factory.mktemp("recorded")
    threads = torch.get_num_threads()
    setting = Setting(root, "tiny", root, Execution("cpu", THREAD, "inline"), code())
    carry_out(Cell("Kaiming uniform", spec()), setting, Stop())
    torch.set_num_threads(threads)
    return Store(root).outcome("tiny", spec().run_id)
