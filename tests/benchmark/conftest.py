"""Fixtures for the tests of the store."""

from __future__ import annotations

from pathlib import Path

import pytest
from stored_records import record

from benchmark.records.store import Store


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """A folder with one valid record beside which something is put."""
    Store(tmp_path).write(record(1))
    return tmp_path / "small"
