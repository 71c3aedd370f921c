"""The studies that every table and figure is tried on."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="package", autouse=True)
def _no_sync() -> Iterator[None]:
    """Records of these tests need not outlive the machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture(scope="session")
def studies(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """By name; not to be changed."""
    from contract_studies import contract_studies

    return contract_studies(tmp_path_factory.mktemp("studies"))
