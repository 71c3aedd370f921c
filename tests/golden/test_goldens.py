"""Initial weights, what the command line prints, numbers and pages of the committed studies are what they were.

Regenerate on purpose: `python -m tests.golden.NAME --write`; a number that is there never changes.
"""

import re
import subprocess
import sys

import pytest

from tests.golden.cli import TRANSCRIPTS
from tests.surroundings import ROOT

NAMES = sorted(path.stem for path in TRANSCRIPTS.glob("*.txt"))
SHARES = 6
"""Processes that transcripts are spread over."""
CLI = [" ".join(["tests.golden.cli", *NAMES[share::SHARES]]) for share in range(SHARES)]
PAGES = "vitinit.analysis.pages --results results/reference --check"


@pytest.mark.parametrize(
    "module", ["tests.golden.weights", *CLI, "tests.golden.analysis", pytest.param(PAGES, id="pages")]
)
def test_it_is_what_it_was(module: str) -> None:
    command = [sys.executable, "-m", *module.split()]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-10_000:] + done.stderr
    if skipped := re.search("^skipped, (.*: .*)", done.stdout, re.MULTILINE):
        pytest.skip(skipped[1])
