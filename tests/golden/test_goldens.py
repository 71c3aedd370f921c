"""Initial weights, what the command line prints, and pages of the committed studies are what they were.

Regenerate on purpose: `python -m tests.golden.NAME --write`; a number that is there never changes.
"""

import os
import sys
from pathlib import Path
from unittest.mock import patch

import pytest

from tests.golden import cli, weights
from tests.records import REFERENCE
from vitinit.analysis.pages.__main__ import main as pages
from vitinit.runners.basics import environment
from vitinit.runners.basics.setting import Execution
from vitinit.runners.options import console

NAMES = sorted(path.stem for path in cli.TRANSCRIPTS.glob("*.txt"))


@pytest.fixture
def terminal(one_thread, monkeypatch):
    """A terminal of 80 columns; what commands set in this process is as before after the test."""
    monkeypatch.setattr(console, "_width", 80)
    monkeypatch.setattr(environment, "CPUINFO", cli.NO_PROCESSOR)
    monkeypatch.setattr(sys.modules["__main__"], "__package__", None, raising=False)  # else usage begins with it
    for name in ("argv", "path"):
        monkeypatch.setattr(sys, name, [*getattr(sys, name)])
    with patch.dict(os.environ, cli.settings()):
        yield
    environment.set_flags(Execution("cpu", 1, "inline"))


@pytest.mark.parametrize("name", NAMES)
def test_a_terminal_shows_what_it_did(name, terminal):
    expected = (cli.TRANSCRIPTS / f"{name}.txt").read_text(encoding="utf-8")
    if "/dev/full" in expected and not Path("/dev/full").exists():
        pytest.skip(f"{name}: no /dev/full here")
    assert cli.transcript(expected) == expected


@pytest.mark.parametrize("model", weights.NAMES)
def test_initial_weights_are_what_they_were(model, one_thread):
    assert weights.differences(model) == []


def test_pages_are_what_the_records_give():
    assert pages(["--results", str(REFERENCE), "--check"]) == 0
