"""Commands in processes of their own, and looking at processes."""

import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
OURS = ("vitinit", "tests")
FORKS = multiprocessing.get_context("forkserver")
"""Starts processes that have imported torch and the like already: doing so takes seconds."""
FORKS.set_forkserver_preload(
    ["tests.faults.harness", "vitinit.runners.one_run.carry_out", "sklearn.datasets", "sklearn.model_selection"]
)
NEEDS_PROC = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="processes are found by /proc")
VITINIT = [sys.executable, "-m", "vitinit.runners.cli"]
PATIENCE = 900.0
"""Seconds after which a test gives up: only what hangs takes so long, however busy the machine is."""


def until(
    happened: Callable[[], object], what: str = "", process: subprocess.Popen | BaseProcess | None = None
) -> None:
    """Wait for something; a process that should bring it about must not end before."""
    deadline = time.monotonic() + PATIENCE
    while not happened():
        ended = process.poll() if isinstance(process, subprocess.Popen) else process and process.exitcode
        assert ended is None, f"it ended: {what}"
        assert time.monotonic() < deadline, f"it hangs: {what}"
        time.sleep(0.02)


def default_signals() -> None:
    """Undo what was inherited: shells start background commands with SIGINT ignored, nohup with SIGHUP."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


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
        preexec_fn=default_signals,
    )


def call(*arguments: str, cwd: Path, before: tuple[str, ...] = (), **environment: str) -> subprocess.CompletedProcess:
    """`vitinit ARGUMENTS` to its end."""
    process = start(*arguments, cwd=cwd, before=before, **environment)
    out, err = process.communicate(timeout=PATIENCE)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def fresh(
    *words: object, cwd: Path, path: tuple[Path, ...] = (ROOT,), **environment: str
) -> subprocess.CompletedProcess:
    """Run `python WORDS` in a process that has imported libraries before, but nothing of ours.

    Args:
        words: `-m MODULE` or `-c CODE`, and its arguments.
        cwd: where it runs.
        path: where it looks for our packages.
        environment: more variables.
    """
    with tempfile.TemporaryDirectory() as folder:
        said = Path(folder)
        arguments = [*map(str, words)], cwd, path, said, {**os.environ, "COLUMNS": "200", **environment}
        process = FORKS.Process(target=_python, args=arguments)
        process.start()
        process.join(PATIENCE)
        assert process.exitcode is not None, f"it hangs: {words}"
        out, err = ((said / name).read_text(errors="replace") for name in ("out", "err"))
        return subprocess.CompletedProcess(words, process.exitcode, out, err)


def _python(words: list[str], cwd: Path, path: tuple[Path, ...], said: Path, environment: dict[str, str]) -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, [])  # the fork server may be that of a launch, which blocks signals
    for descriptor, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(said / name, os.O_WRONLY | os.O_CREAT), descriptor)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    for name in list(sys.modules):
        if name.partition(".")[0] in OURS:
            del sys.modules[name]
    sys.path[:] = [*map(str, path), *(entry for entry in sys.path if entry not in ("", str(ROOT)))]
    kind, what, *_ = words
    sys.argv = words[1:]
    if kind == "-c":
        exec(what, {"__name__": "__main__"})
    else:
        runpy.run_module(what, run_name="__main__", alter_sys=True)


def children(pid: int) -> list[int]:
    """All descendants of a process."""
    found = _direct(pid)
    return found + [deeper for child in found for deeper in children(child)]


def _direct(pid: int) -> list[int]:
    """Children of a process; none if it has ended."""
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def grandchildren(pid: int) -> list[int]:
    """Runs: what the fork server forked."""
    direct = _direct(pid)
    return [child for child in children(pid) if child not in direct]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
