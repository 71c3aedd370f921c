"""Carrying out the runs of a study on this machine, in this process or in several."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from benchmark import datasets
from benchmark.grid import Cell
from benchmark.record import FailureRecord, RunRecord
from benchmark.spec import DatasetSpec, RunSpec
from benchmark.store import Store
from initializers.errors import VitinitError
from runners import claims
from runners.augment import rand_augment
from runners.display import Display
from runners.run import Ended, Event, Setting, carry_out, failure
from runners.stop import SIGNALS, Stop, Stopped, on_signals

GRACE_S = 10.0
"""Seconds that a run has to save and end when the launch is stopped."""

PRELOAD = ["runners.run", "sklearn.datasets", "sklearn.model_selection", "torchvision.datasets"]


def preflight(cells: list[Cell], data_dir: Path) -> dict[DatasetSpec, int]:
    """Read every dataset once before anything trains, so that bad data stops a study at its start.

    Returns:
        Number of training images by dataset.

    Raises:
        VitinitError: a dataset cannot be read, or has fewer training images than a batch; or timm does not take a
            recipe's `rand_augment`.
    """
    for config in {cell.spec.recipe.rand_augment for cell in cells} - {None}:
        try:
            rand_augment(str(config), 32, (0.5, 0.5, 0.5))
        except Exception as error:  # timm checks with bare asserts
            raise VitinitError(f"recipe field rand_augment: timm refuses {config!r}: {error}") from error
    images: dict[DatasetSpec, int] = {}
    for spec in {(cell.spec.dataset, cell.spec.model.image_size): cell.spec for cell in cells}.values():
        images[spec.dataset] = len(datasets.load(spec.dataset, spec.model.image_size, data_dir).train.labels)
    for cell in cells:
        size, count = cell.spec.recipe.batch_size, images[cell.spec.dataset]
        if size > count:
            raise VitinitError(f"{cell.describe()}: batch_size {size} is more than the {count} training images")
    return images


def cores() -> int:
    """Cores that this process may use: fewer than the machine has inside a container or a cluster job."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def estimated_work(spec: RunSpec, images: int) -> float:
    """How long a run on so many images takes, in arbitrary units: images seen times matrix products of one image."""
    return spec.recipe.epochs * images * spec.model.grid**2 * spec.model.width**2 * spec.model.depth


@dataclass
class Tally:
    """What became of the runs of one launch."""

    finished: int = 0
    failed: int = 0
    stopped: int = 0
    """Asked to stop, one by one; a stop of the whole launch is a KeyboardInterrupt."""
    elsewhere: int = 0
    """Another launcher was carrying them out."""


End = RunRecord | FailureRecord | Ended


def launch(cells: list[Cell], setting: Setting, workers: int, display: Display) -> Tally:
    """Carry out runs; each leaves a record.

    The executor `inline` runs one after the other in this process, on every core. `local` keeps `workers` processes
    busy, a fresh one a run, each with its share of the cores; a process that dies becomes a failure record.

    Raises:
        VitinitError: a dataset cannot be read, or the results folder cannot be written.
        KeyboardInterrupt: on Ctrl-C, SIGTERM or SIGUSR2; runs in progress have saved where they were.
    """
    images = preflight(cells, setting.data_dir)
    check_writable(setting.root / setting.study)
    work = {cell.spec.run_id: estimated_work(cell.spec, images[cell.spec.dataset]) for cell in cells}
    cells = sorted(cells, key=lambda cell: -work[cell.spec.run_id])  # so that no long one is left over alone
    tally = Tally()
    with display:
        display.begin(cells, work)
        inline = setting.execution.executor == "inline"
        with contextlib.closing((_inline if inline else _local)(cells, setting, workers, display)) as ends:
            for end in ends:
                display.end(end)
                tally.finished += end.status == "done"
                tally.failed += end.status == "failed"
                tally.stopped += end.status == "stopped"
                tally.elsewhere += end.status == "elsewhere"
    return tally


def begin_anew(prefixes: list[str], cells: list[Cell], store: Store, study: str) -> None:
    """Put runs back to their start: records are set aside under another name, checkpoints are removed.

    Raises:
        VitinitError: a prefix names no run of the grid or several, or the run is being carried out.
    """
    for prefix in prefixes:
        run_ids = [cell.spec.run_id for cell in cells if cell.spec.run_id.startswith(prefix)]
        if len(run_ids) != 1:
            found = f"{len(run_ids)} runs of this grid" if run_ids else "no run of this grid"
            raise VitinitError(f"--force {prefix}: {found}; see: vitinit plan")
        folder = claims.folder(store.root, study, run_ids[0])
        try:
            with claims.held(folder, Stop()) as claim:
                store.supersede(study, run_ids[0])
                claim.finish()
        except claims.Taken as taken:
            raise VitinitError(f"--force {prefix}: {taken}") from None


def tidy(root: Path, study: str, done: set[str]) -> None:
    """Remove what recorded runs have left behind: they were killed between their record and their own tidying."""
    for folder in (root / study / "unfinished").glob("*"):
        if folder.name in done:
            with contextlib.suppress(claims.Taken), claims.held(folder, Stop()) as claim:
                claim.finish()


def check_writable(folder: Path) -> None:
    """Find out before hours of training, not after.

    Raises:
        VitinitError: records cannot be written there.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"0" * 2**16)
    except OSError as error:
        raise VitinitError(f"cannot write to the results folder {folder}: {error.strerror or error}") from None


def _inline(cells: list[Cell], setting: Setting, workers: int, display: Display) -> Generator[End, None, None]:
    stop = Stop()
    with on_signals(stop):
        for cell in cells:
            display.start(cell)
            end = _carry_out(cell, setting, stop, display.event)
            if stop.reason and isinstance(end, Ended):
                display.end(end)
                raise KeyboardInterrupt
            yield end
            if stop.reason:
                raise KeyboardInterrupt


def _carry_out(cell: Cell, setting: Setting, stop: Stop, on_event: Callable[[Event], None]) -> End:
    try:
        return carry_out(cell, setting, stop, on_event)
    except claims.Taken as taken:
        return Ended(cell.spec.run_id, "elsewhere", str(taken))
    except Stopped as stopped:
        return Ended(cell.spec.run_id, "stopped", str(stopped))


def _local(cells: list[Cell], setting: Setting, workers: int, display: Display) -> Generator[End, None, None]:
    # A fork server has torch imported already but has run nothing: each run starts clean and at once.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOAD)
    waiting = list(reversed(cells))
    running: dict[Connection, tuple[Cell, ForkServerProcess]] = {}
    asked_to_stop, ask = context.Pipe(duplex=False)
    stop = Stop(wake=lambda: ask.send_bytes(b"stop"))
    with on_signals(stop):
        try:
            while (waiting or running) and not stop.reason:
                while waiting and len(running) < workers:
                    cell = waiting.pop()
                    receiver, sender = context.Pipe(duplex=False)
                    process = context.Process(target=_child, args=(cell, setting, sender), daemon=True)
                    process.start()
                    sender.close()
                    running[receiver] = (cell, process)
                    display.start(cell)
                for ready in wait([*running, asked_to_stop]):
                    if isinstance(ready, Connection) and ready in running:
                        end = _message(ready, *running[ready], setting, display)
                        if end:
                            del running[ready]
                            yield end
        finally:
            _stop(running, display)
        if stop.reason:
            raise KeyboardInterrupt


def _message(
    receiver: Connection, cell: Cell, process: ForkServerProcess, setting: Setting, display: Display
) -> End | None:
    """Take one message of a run: an event is displayed, an end is returned."""
    try:
        message = receiver.recv()
    except EOFError:
        process.join()
        code = process.exitcode or 0
        if -code in SIGNALS:
            return Ended(cell.spec.run_id, "stopped", f"{signal.Signals(-code).name} before it had begun")
        outcome = failure(cell, setting, "ProcessDied", _how_it_died(code))
        Store(setting.root).write(outcome)
        return outcome
    if isinstance(message, Event):
        display.event(message)
        return None
    process.join()
    if isinstance(message, VitinitError):
        raise message
    end: End = message
    return end


def _stop(running: dict[Connection, tuple[Cell, ForkServerProcess]], display: Display) -> None:
    """Let every run save and end; kill what has not done so in time: its last checkpoint stays."""
    deadline = time.monotonic() + GRACE_S
    for _, process in running.values():
        process.terminate()
    try:
        while running and (ready := wait(list(running), max(0.0, deadline - time.monotonic()))):
            for receiver in ready:
                assert isinstance(receiver, Connection)
                cell, process = running[receiver]
                try:
                    message = receiver.recv()
                except EOFError:
                    message = Ended(cell.spec.run_id, "stopped", "its process ended")
                if isinstance(message, VitinitError):
                    message = Ended(cell.spec.run_id, "stopped", str(message))
                if isinstance(message, Event):
                    display.event(message)
                    continue
                display.end(message)
                process.join()
                del running[receiver]
    finally:
        for cell, process in running.values():
            process.kill()
            display.end(Ended(cell.spec.run_id, "stopped", f"killed: it had not saved within {GRACE_S:.0f} s"))
        for _, process in running.values():
            process.join()


def _child(cell: Cell, setting: Setting, sender: Connection) -> None:
    stop = Stop()

    def send(message: object) -> None:
        try:
            sender.send(message)
        except BrokenPipeError:
            stop.request("its launcher has gone")

    def outlive_nobody() -> None:
        launcher = multiprocessing.parent_process()
        if launcher:
            launcher.join()
            stop.request("its launcher has gone")

    threading.Thread(target=outlive_nobody, daemon=True).start()
    with on_signals(stop):
        try:
            end: object = _carry_out(cell, setting, stop, send)
        except VitinitError as error:
            end = error
        send(end)


def _how_it_died(exitcode: int) -> str:
    if exitcode < 0:
        return f"its process was killed by {signal.Signals(-exitcode).name}" + (
            " (out of memory?)" if -exitcode == signal.SIGKILL else ""
        )
    return f"its process ended with exit code {exitcode} and no record"
