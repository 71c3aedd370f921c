"""Functions that jobs of the tests call. Each gets (folder to write to, argument)."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from vitinit.slurm import jobs


def write(out: Path, name: str, text: str) -> None:
    part = out / f"{name}.part"
    part.write_text(text)
    part.rename(out / name)


def stamp(given: tuple[Path, int]) -> None:
    """Writes the argument, the job and from when until when it ran."""
    out, argument = given
    start = time.time()
    time.sleep(2)
    write(out, f"{argument}", f"{jobs.current()} {start} {time.time()}")


def wait(given: tuple[Path, str]) -> None:
    write(given[0], f"{given[1]}-started", "")
    time.sleep(300)


def wait_deaf(given: tuple[Path, str]) -> None:
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    wait(given)


def fail(given: tuple[Path, str]) -> None:
    raise ValueError(f"cannot do {given[1]}")


def rank(given: tuple[Path, str]) -> None:
    write(given[0], os.environ["SLURM_PROCID"], f"{os.environ['SLURM_NTASKS']} {os.environ['SLURM_CPUS_PER_TASK']}")


def rank_1_fails(given: tuple[Path, str]) -> None:
    if os.environ["SLURM_PROCID"] == "1":
        raise ValueError("rank 1 has had enough")
    wait(given)


def requeue_when_told(given: tuple[Path, str]) -> None:
    """Waits for a signal, asks to be requeued, and writes what came of it; started again it ends."""
    out, name = given
    restarts = os.environ.get("SLURM_RESTART_COUNT", "0")
    told: list[int] = []
    for number in (signal.SIGUSR2, signal.SIGTERM):
        signal.signal(number, lambda number, frame: told.append(number))
    write(out, f"{name}-started-{restarts}", str(time.time()))
    while restarts == "0" and not told:
        time.sleep(0.1)
    if told:
        write(out, f"{name}-told", f"{signal.Signals(told[0]).name} {time.time()}")
        write(out, f"{name}-preempted", str(jobs.preempted_current()))
        write(out, f"{name}-requeued", str(jobs.requeue_current()))
        time.sleep(60)


def environment(given: tuple[Path, str]) -> None:
    names = ("GREETING", "FROM_SETUP", "CUDA_VISIBLE_DEVICES")
    write(given[0], "environment", " ".join(os.environ.get(name, "-") for name in names))
