"""Slow libraries wait until they are needed. (Imports between packages: `[tool.importlinter]`, by `make check`.)"""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("command", "absent"),
    [
        ("-c 'import vitinit'", "torch timm torchvision pandas"),
        ("-m vitinit.runners.cli --help", "torch pandas matplotlib"),
        ("-m vitinit.runners.cli list datasets", "torch torchvision timm sklearn scipy pandas"),
        ("-m vitinit.runners.cli plan smoke", "torch timm sklearn pandas matplotlib"),
        (
            f"-m vitinit.analysis.tables --results {shlex.quote(str(ROOT))}/results/reference --study small",
            "torch timm",
        ),
    ],
)
def test_a_command_starts_without_what_it_does_not_need(command, absent, tmp_path, vitinit):
    """Python lists each module that a command imports (-X importtime); a plan is made for the second time."""
    line = f"{shlex.quote(sys.executable)} -X importtime {command}"
    # without what the library readline sets, for children that are given no environment
    how = {"shell": True, "cwd": tmp_path, "env": {**os.environ}, "capture_output": True, "text": True}
    before = vitinit("plan smoke")[1] if "plan" in command else ""
    done = subprocess.run(line, **how)
    if before:  # on a terminal run_ids have eight digits
        assert [word[:8] for word in done.stdout.split()] == [word[:8] for word in before.split()]
    assert done.returncode == 0, done.stderr[-500:]
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
    assert len(imported) > 20
    assert not imported & set(absent.split())
