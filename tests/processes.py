"""The command line in processes of its own, and looking at processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[1]
VITINIT = [sys.executable, "-m", "runners.cli"]
PATIENCE = 900.0
"""Seconds after which a test gives up: only what hangs takes so long, however busy the machine is."""


def until(happened: Callable[[], object], what: str, process: subprocess.Popen | None = None) -> None:
    """Wait for something; a process that should bring it about must not end before."""
    deadline = time.monotonic() + PATIENCE
    while not happened():
        assert process is None or process.poll() is None, f"it ended: {what}"
        assert time.monotonic() < deadline, f"it hangs: {what}"
        time.sleep(0.02)


def heed_ctrl_c() -> None:
    """Shells start background commands, such as a run of these tests may be, with SIGINT ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def start(*arguments: str, cwd: Path, before: tuple[str, ...] = (), **environment: str) -> subprocess.Popen:
    """`vitinit ARGUMENTS` at the head of a process group of its own; `before` is what starts it."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200", **environment}
    return subprocess.Popen(
        [*before, *VITINIT, *arguments],
        cwd=cwd,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=heed_ctrl_c,
    )


def call(*arguments: str, cwd: Path, before: tuple[str, ...] = (), **environment: str) -> subprocess.CompletedProcess:
    """`vitinit ARGUMENTS` to its end."""
    process = start(*arguments, cwd=cwd, before=before, **environment)
    out, err = process.communicate(timeout=PATIENCE)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def children(pid: int) -> list[int]:
    """All descendants of a process."""
    found = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return found + [deeper for child in found for deeper in children(child)]


def grandchildren(pid: int) -> list[int]:
    """Runs: what the fork server forked."""
    direct = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return [child for child in children(pid) if child not in direct]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
