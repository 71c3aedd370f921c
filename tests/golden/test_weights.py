"""Initial weights are those of `weights.json`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_the_initial_weights_are_what_they_were() -> None:
    """Another model, option or seed is another case; a number that is there never changes."""
    command = [sys.executable, "-m", "tests.golden.weights"]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
