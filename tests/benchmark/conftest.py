"""Fixtures that several of these tests share."""

from functools import cache

import pytest
from stored_records import record

from vitinit.benchmark.datasets import pathfinder, shapes
from vitinit.benchmark.records.store import Store


@pytest.fixture(scope="session", autouse=True)
def _drawn_once():
    """Images that are drawn are drawn once for all tests: their bits are pinned where they are tested."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (pathfinder, shapes):
            patch.setattr(module, "generate", cache(module.generate))
        yield


@pytest.fixture
def study(tmp_path):
    """A folder with one valid record beside which something is put."""
    Store(tmp_path).write(record(1))
    return tmp_path / "small"
