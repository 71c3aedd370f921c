"""The executor `local`: several runs at once, each in a process of its own that a fork server starts."""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Generator
from dataclasses import dataclass
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext, ForkServerProcess
from types import ModuleType

from vitinit.benchmark.grids.schema import Cell
from vitinit.initializers.errors import VitinitError, os_errors
from vitinit.runners.basics.machine import gpu_slots
from vitinit.runners.basics.setting import End, Event, Setting, Unfinished
from vitinit.runners.basics.stop import SIGNALS, Stop, on_signals
from vitinit.runners.launching.work import Queue, record_failure
from vitinit.runners.terminal.display import Display

END_S = 10.0
"""Seconds that the process of a run has to end after its last word."""

PRELOAD = [
    "vitinit.runners.one_run.carry_out",
    "torchvision.datasets",
]


@dataclass(frozen=True)
class _Running:
    cell: Cell
    process: ForkServerProcess
    slot: str | None
    """GPU of its process; None where it sees all of them, or none."""


@dataclass(frozen=True)
class Local:
    """Several runs at once, a fresh process a run; a process that dies becomes a failure record.

    Each process sees the GPU that has fewest runs.
    """

    workers: int

    def ends(self, queue: Queue, display: Display, stop: Stop) -> Generator[End, None, None]:
        """See `work.Executor`."""
        context, setting = fork_server(), queue.work.setting
        slots: list[str | None] = [*(gpu_slots() if setting.execution.device == "cuda" else ())] or [None]
        running: dict[Connection, _Running] = {}
        trouble: VitinitError | None = None
        deadline, late = math.inf, False
        asked_to_stop, ask = context.Pipe(duplex=False)
        stop = Stop(wake=lambda: ask.send_bytes(b"stop"), parent=stop)
        with on_signals(stop):
            try:
                while True:
                    if stop.reason and deadline == math.inf:  # every run may save and end
                        deadline = time.monotonic() + setting.grace_s
                        for run in running.values():
                            run.process.terminate()
                    while len(running) < self.workers and not (trouble or stop.reason) and (cell := queue.next()):
                        slot = min(slots, key=[run.slot for run in running.values()].count)
                        try:
                            receiver, process = _start(context, cell, setting, slot)
                            running[receiver] = _Running(cell, process, slot)
                        except VitinitError as error:
                            trouble = error
                    if not running:
                        break
                    if deadline == math.inf:
                        ready = wait([*running, asked_to_stop])
                    else:
                        ready = wait(list(running), max(0.0, deadline - time.monotonic()))
                        late = not ready
                    for receiver, run in list(running.items()):
                        if receiver not in ready and not late:
                            continue
                        message = None if late else _receive(receiver)
                        if isinstance(message, Event):
                            display.event(message)
                            continue
                        run.process.join(0 if late else END_S)
                        run.process.kill()
                        run.process.join()
                        receiver.close()
                        del running[receiver]
                        if isinstance(message, VitinitError):
                            # the results folder cannot be written: what runs may end, nothing more is started
                            trouble, message = message, Unfinished(run.cell.run_id, "stopped", str(message))
                        elif late:
                            why = "killed before it had saved; its last checkpoint counts"
                            message = Unfinished(run.cell.run_id, "stopped", why)
                        yield message or _died(run, setting, stop)
            finally:
                for run in running.values():
                    run.process.kill()
            if stop.reason:
                raise KeyboardInterrupt(stop.reason)
        if trouble:
            raise trouble


def fork_server() -> ForkServerContext:
    """Start a process that imports torch but runs nothing, and forks a clean process for each run at once.

    It ends with the launcher. A signal to the whole process group must not end it before: it is started with these
    signals blocked, and a run unblocks them when it can handle them.

    Raises:
        VitinitError: the folder for temporary files cannot hold its socket, as where its path is over 80 letters long.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOAD)
    resource_tracker.ensure_running()  # the fork server starts it otherwise, and it unblocks signals on its way
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    said = (
        f"cannot start a process for the runs: the folder for temporary files, {tempfile.gettempdir()}, holds no socket"
    )
    try:
        with os_errors(f"{said} (set TMPDIR to another)"):
            forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return context


def _start(
    context: ForkServerContext, cell: Cell, setting: Setting, slot: str | None
) -> tuple[Connection, ForkServerProcess]:
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(cell, setting, sender, slot, dict(os.environ)), daemon=True)
    script = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")  # else it is imported there: it may call `vitinit.run` at its top
    try:
        process.start()
    except (EOFError, OSError) as error:
        raise VitinitError(f"cannot start a process for {cell.describe()}: {error or 'no fork server'}") from None
    finally:
        sys.modules["__main__"] = script
    sender.close()
    return receiver, process


def _receive(receiver: Connection) -> Event | End | VitinitError | None:
    """One message of a run; None when its process died without a last one."""
    try:
        message: Event | End | VitinitError = receiver.recv()
    except (EOFError, OSError):  # OSError in the middle of a message
        return None
    return message


def _died(run: _Running, setting: Setting, stop: Stop) -> End:
    """Record that a run's process died, unless the run was recorded before, or another launcher has it already."""
    code = run.process.exitcode or 0
    number = next((each for each in signal.Signals if each == -code), None)
    how = f"its process was killed by {number.name}" if number else f"its process ended with exit code {code}"
    if stop.reason or number in SIGNALS:
        return Unfinished(run.cell.run_id, "stopped", f"{how} before it had begun")
    return record_failure(run.cell, setting, "ProcessDied", how + " (out of memory?)" * (number == signal.SIGKILL))


def _child(cell: Cell, setting: Setting, sender: Connection, slot: str | None, environment: dict[str, str]) -> None:
    os.environ.update(environment)  # the fork server has that of its own start
    if slot is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = slot  # CUDA reads it at its first call, which the fork server never makes
    from vitinit.runners.one_run.carry_out import carry_out

    stop = Stop()

    def send(message: object) -> None:
        try:
            sender.send(message)
        except OSError:
            stop.request("its launcher has gone")

    def outlive_nobody() -> None:
        launcher = multiprocessing.parent_process()
        if launcher:
            launcher.join()
            stop.request("its launcher has gone")

    threading.Thread(target=outlive_nobody, daemon=True).start()
    with on_signals(stop):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        try:
            end: object = carry_out(cell, setting, stop, send)
        except VitinitError as error:
            end = error
        send(end)
