"""Skips for tests that run only on request, and the studies that every table and figure is tried on."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Compile tables for `make test-latex` alone, which fails where pdflatex is missing."""
    for item in items:
        if item.path.name == "test_formats.py" and "latex_compiles" in item.name:
            item.own_markers = [mark for mark in item.own_markers if mark.name != "skipif"]
            if os.environ.get("VITINIT_TEST_LATEX") != "1":
                item.add_marker(pytest.mark.skip(reason="make test-latex"))


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
