"""Fixtures that tests of the analysis share."""

import os

import pytest


@pytest.fixture(scope="package", autouse=True)
def _no_sync():
    """Records of these tests need not outlive the machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield
