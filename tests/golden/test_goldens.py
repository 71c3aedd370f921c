"""Initial weights, what the command line prints, numbers and pages of the committed studies are what they were.

Regenerate on purpose: `python -m tests.golden.NAME --write`; a number that is there never changes.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PAGES = "vitinit.analysis.pages --results results/reference --check"


@pytest.mark.parametrize("module", ["tests.golden.weights", "tests.golden.cli", "tests.golden.analysis", PAGES])
def test_it_is_what_it_was(module: str) -> None:
    command = [sys.executable, "-m", *module.split()]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-10_000:] + done.stderr
