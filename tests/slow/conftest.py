"""Tests that take minutes: make test-slow."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def _asked_for() -> None:
    if os.environ.get("VITINIT_TEST_SLOW") != "1":
        pytest.skip("takes minutes: make test-slow")
