"""Runs in processes of their own: a fork server starts them, they tell how they go on, and a stop reaches them all."""

from __future__ import annotations

import multiprocessing
import signal
import threading
import time
from collections.abc import Generator
from dataclasses import dataclass
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext, ForkServerProcess
from typing import Any

from vitinit.benchmark.grids.schema import Cell
from vitinit.benchmark.records.record import RunRecord
from vitinit.benchmark.records.store import Store
from vitinit.benchmark.spec import DatasetSpec
from vitinit.initializers.errors import VitinitError
from vitinit.runners.basics.setting import End, Event, Setting, Unfinished
from vitinit.runners.basics.stop import SIGNALS, Stop, on_signals
from vitinit.runners.one_run import claims
from vitinit.runners.one_run.outcome import failure
from vitinit.runners.terminal.display import Display

END_S = 10.0
"""Seconds that the process of a run has to end after its last word."""


PRELOAD = [
    "vitinit.runners.launching.together",
    "vitinit.runners.launching.preflight",
    "sklearn.datasets",
    "sklearn.model_selection",
    "torchvision.datasets",
]


@dataclass(frozen=True)
class _Running:
    cell: Cell
    process: ForkServerProcess


def carry_out_all(
    cells: list[Cell], setting: Setting, workers: int, display: Display, parent: Stop | None
) -> Generator[End, None, None]:
    """Carry runs out, so many at once, a fresh process a run; yields the end of each as it comes.

    Raises:
        VitinitError: no process can be started, or the results folder cannot be written.
        KeyboardInterrupt: a stop was asked for; runs in progress have saved where they were.
    """
    context = _fork_server()
    waiting = list(reversed(cells))
    running: dict[Connection, _Running] = {}
    trouble: VitinitError | None = None
    asked_to_stop, ask = context.Pipe(duplex=False)
    stop = Stop(wake=lambda: ask.send_bytes(b"stop"), parent=parent)
    with on_signals(stop):
        try:
            while (waiting or running) and not stop.reason:
                while waiting and len(running) < workers and not stop.reason:
                    cell = waiting.pop()
                    display.start(cell)
                    if owner := claims.live(claims.folder(setting.root, setting.study, cell.run_id)):
                        yield Unfinished(cell.spec.run_id, "elsewhere", f"being run by {owner.describe()}")
                        continue
                    try:
                        receiver, process = _start(context, cell, setting)
                    except VitinitError as error:
                        if not stop.reason:
                            raise
                        display.end(Unfinished(cell.spec.run_id, "stopped", str(error)))
                        break
                    running[receiver] = _Running(cell, process)
                for ready in wait([*running, asked_to_stop]) if running else ():
                    if stop.reason:
                        break
                    assert isinstance(ready, Connection)
                    message = _receive(ready, running[ready])
                    if isinstance(message, Event):
                        display.event(message)
                        continue
                    run = running.pop(ready)
                    if isinstance(message, VitinitError):
                        # the results folder cannot be written: what runs may end, nothing more is started
                        trouble, message = message, Unfinished(run.cell.spec.run_id, "stopped", str(message))
                        waiting.clear()
                    yield message or _died(run, setting)
        finally:
            _stop(running, display, setting.grace_s)
        if stop.reason:
            raise KeyboardInterrupt(stop.reason)
    if trouble:
        raise trouble


def _fork_server() -> ForkServerContext:
    """A process that has torch imported already but has run nothing: each run starts clean and at once.

    It ends with the launcher. A signal to the whole process group must not end it before: it is started with these
    signals blocked, and a run unblocks them when it can handle them.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOAD)
    resource_tracker.ensure_running()  # the fork server starts it otherwise, and it unblocks signals on its way
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return context


def _start(context: ForkServerContext, cell: Cell, setting: Setting) -> tuple[Connection, ForkServerProcess]:
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(cell, setting, sender), daemon=True)
    try:
        process.start()
    except (EOFError, OSError) as error:
        raise VitinitError(
            f"cannot start a process for {cell.describe()}: {error or 'the fork server has gone'}"
        ) from None
    sender.close()
    return receiver, process


def _receive(receiver: Connection, run: _Running) -> Event | End | VitinitError | None:
    """One message of a run; None when its process died without a last one."""
    message: Event | End | VitinitError | None
    try:
        message = receiver.recv()
    except (EOFError, OSError):  # OSError in the middle of a message
        message = None
    if not isinstance(message, Event):
        run.process.join(END_S)
        if run.process.exitcode is None:
            run.process.kill()
            run.process.join()
        receiver.close()
    return message


def _died(run: _Running, setting: Setting) -> End:
    """Record that a run's process died, unless the run was recorded before, or another launcher has it already."""
    run_id, code = run.cell.spec.run_id, run.process.exitcode or 0
    if -code in SIGNALS:
        return Unfinished(run_id, "stopped", f"{_how_it_died(code)} before it had begun")
    store = Store(setting.root)
    try:
        with claims.held(claims.folder(setting.root, setting.study, run_id), Stop()) as claim:
            recorded = store.outcome(setting.study, run_id)
            if isinstance(recorded, RunRecord):
                claim.finish()
                return recorded
            outcome = failure(run.cell, setting, "ProcessDied", _how_it_died(code))
            store.write(outcome)
            return outcome
    except claims.Taken as taken:
        return Unfinished(run_id, "elsewhere", str(taken))


def _stop(running: dict[Connection, _Running], display: Display, grace_s: float) -> None:
    """Let every run save and end; kill what has not done so in time: its last checkpoint stays."""
    deadline = time.monotonic() + grace_s
    for run in running.values():
        run.process.terminate()
    try:
        while running and (ready := wait(list(running), max(0.0, deadline - time.monotonic()))):
            for receiver in ready:
                assert isinstance(receiver, Connection)
                message = _receive(receiver, running[receiver])
                if isinstance(message, Event):
                    display.event(message)
                    continue
                run_id = running.pop(receiver).cell.spec.run_id
                if message is None or isinstance(message, VitinitError):
                    message = Unfinished(run_id, "stopped", str(message or "its process ended"))
                display.end(message)
    finally:
        for run in running.values():
            run.process.kill()
            display.end(
                Unfinished(run.cell.spec.run_id, "stopped", "killed before it had saved; its last checkpoint counts")
            )
        for run in running.values():
            run.process.join()


def training_images(cells: list[Cell], setting: Setting, parent: Stop | None) -> dict[DatasetSpec, int]:
    """`preflight`, in a process that has torch; a request to stop ends it."""
    context = _fork_server()
    receiver, sender = context.Pipe(duplex=False)
    asked_to_stop, ask = context.Pipe(duplex=False)
    stop = Stop(wake=lambda: ask.send_bytes(b"stop"), parent=parent)
    process = context.Process(target=_tell_images, args=(cells, setting, sender), daemon=True)
    answer: dict[DatasetSpec, int] | VitinitError
    with on_signals(stop):
        process.start()
        sender.close()
        wait([receiver, asked_to_stop])
        if stop.reason:
            process.kill()
            raise KeyboardInterrupt(stop.reason)
        try:
            answer = receiver.recv()
        except EOFError:
            process.join()
            answer = VitinitError(f"the datasets cannot be read: {_how_it_died(process.exitcode or 0)}")
    if isinstance(answer, VitinitError):
        raise answer
    return answer


def _tell_images(cells: list[Cell], setting: Setting, sender: Connection) -> None:
    from vitinit.runners.launching.preflight import preflight

    answer: Any
    try:
        answer = preflight(cells, setting)
    except VitinitError as error:
        answer = error
    sender.send(answer)


def _child(cell: Cell, setting: Setting, sender: Connection) -> None:
    from vitinit.runners.launching.together import to_its_end
    from vitinit.runners.training.distributed import ALONE

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
    with on_signals(stop, impatient=False):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        try:
            end: object = to_its_end(cell, setting, stop, send, ALONE)
        except VitinitError as error:
            end = error
        send(end)


def _how_it_died(exitcode: int) -> str:
    if exitcode < 0:
        name = next((number.name for number in signal.Signals if number == -exitcode), f"signal {-exitcode}")
        return f"its process was killed by {name}" + (" (out of memory?)" if -exitcode == signal.SIGKILL else "")
    return f"its process ended with exit code {exitcode} and no record"
