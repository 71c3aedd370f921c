"""Commands in processes of their own, and looking at processes."""

import multiprocessing
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FORKS = multiprocessing.get_context("forkserver")
"""Starts processes that have imported torch and the like already: doing so takes seconds."""
FORKS.set_forkserver_preload(
    ["tests.faults.harness", "vitinit.runners.one_run.carry_out", "sklearn.datasets", "sklearn.model_selection"]
)
NEEDS_PROC = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="processes are found by /proc")
VITINIT = [sys.executable, "-m", "vitinit.runners.cli"]
PATIENCE = 900.0
"""Seconds after which a test gives up: only what hangs takes so long, however busy the machine is."""


def until(happened, what="", process=None):
    """Wait for something; a process that should bring it about must not end before."""
    deadline = time.monotonic() + PATIENCE
    while not happened():
        ended = process.poll() if isinstance(process, subprocess.Popen) else process and process.exitcode
        assert ended is None, f"it ended: {what}"
        assert time.monotonic() < deadline, f"it hangs: {what}"
        time.sleep(0.02)


def default_signals():
    """Undo what was inherited: shells start background commands with SIGINT ignored, nohup with SIGHUP."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def start(line, cwd, **environment):
    """`vitinit LINE` at the head of a process group of its own."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200", **environment}
    return subprocess.Popen(
        [*VITINIT, *shlex.split(line)],
        cwd=cwd,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=default_signals,
    )


def call(line, cwd, **environment):
    """`vitinit LINE` to its end."""
    process = start(line, cwd, **environment)
    out, err = process.communicate(timeout=PATIENCE)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def children(pid):
    """All descendants of a process."""
    direct = _direct(pid)
    return direct + [deeper for child in direct for deeper in children(child)]


def _direct(pid):
    """Children of a process; none if it has ended."""
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def grandchildren(pid):
    """Runs: what the fork server forked."""
    direct = _direct(pid)
    return [child for child in children(pid) if child not in direct]


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
