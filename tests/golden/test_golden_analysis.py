"""The analysis gives the numbers that it gave: every table and chart of the committed studies, and their pages."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "command",
    [["tests.golden.analysis"], ["analysis.pages", "--results", "results/reference", "--check"]],
    ids=" ".join,
)
def test_the_analysis_of_the_committed_studies_is_what_it_was(command: list[str]) -> None:
    """Regenerate on purpose: `python -m tests.golden.analysis --write`, `python -m analysis.pages`."""
    done = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-10_000:] + done.stderr
