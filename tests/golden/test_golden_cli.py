"""What the command line prints, whole, beside the transcripts in `cli/`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_the_command_line_prints_what_it_printed() -> None:
    """Regenerate on purpose: `python -m tests.golden.cli --write`."""
    command = [sys.executable, "-m", "tests.golden.cli"]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
