"""From a grid to records: drop what is recorded, skip what cannot run here, carry out the rest."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Literal

from benchmark import datasets
from benchmark.grid import Cell, Grid
from benchmark.record import FailureRecord, RunRecord
from benchmark.spec import DatasetSpec, RunSpec
from benchmark.store import Contents, Store
from initializers.errors import VitinitError
from runners.augment import rand_augment
from runners.display import Display
from runners.run import Event, Execution, failure, run, skip

State = Literal["done", "failed", "skip", "to do"]

PRELOAD = ["runners.run", "sklearn.datasets", "sklearn.model_selection", "torchvision.datasets"]


@dataclass(frozen=True)
class Planned:
    """A cell and what is to become of it."""

    cell: Cell
    state: State
    reason: str = ""
    """Why it is skipped, or what its last attempt failed of."""


def plan(grid: Grid, store: Store, data_dir: Path) -> tuple[list[Planned], Contents]:
    """What each run of a grid needs; nothing is written. A failed run is to be run again."""
    contents = store.read(grid.name)
    unavailable = cache(lambda spec: datasets.unavailable(spec, data_dir))

    def planned(cell: Cell) -> Planned:
        run_id = cell.spec.run_id
        if run_id in contents.done:
            return Planned(cell, "done")
        reason = unavailable(cell.spec.dataset)
        if reason:
            return Planned(cell, "skip", reason)
        if run_id in contents.failed:
            failed = contents.failed[run_id]
            return Planned(cell, "failed", f"{failed.error}: {failed.message}")
        return Planned(cell, "to do")

    return [planned(cell) for cell in grid.cells], contents


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


def launch(
    planned: list[Planned],
    grid: Grid,
    store: Store,
    data_dir: Path,
    executor: Literal["inline", "local"],
    device: str,
    workers: int,
    display: Display,
) -> tuple[int, int]:
    """Carry out what is to do (and what failed before); write a record for each run, and for each skip.

    `inline` runs one after the other in this process, on every core. `local` keeps `workers` processes busy, a fresh
    one a run, each with its share of the cores; a process that dies becomes a failure record.

    Returns:
        Numbers of finished and of failed runs.

    Raises:
        VitinitError: a dataset cannot be read, or a record cannot be written.
        KeyboardInterrupt: on Ctrl-C or SIGTERM; runs in progress are stopped, finished ones are recorded.
    """
    for item in planned:
        if item.state == "skip":
            store.write(skip(item.cell, grid.name, item.reason))
    cells = [item.cell for item in planned if item.state in ("to do", "failed")]
    images = preflight(cells, data_dir)
    work = {cell.spec.run_id: estimated_work(cell.spec, images[cell.spec.dataset]) for cell in cells}
    cells.sort(key=lambda cell: -work[cell.spec.run_id])  # the longest first, so that none is left over alone
    threads = cores() if executor == "inline" else max(1, cores() // workers)
    execution = Execution(device=device, threads=threads, executor=executor)
    carry_out = _inline if executor == "inline" else _local
    finished = failed = 0
    with _sigterm_is_ctrl_c(), display:
        display.begin(cells, work)
        for outcome in carry_out(cells, grid.name, store, data_dir, execution, workers, display):
            display.end(outcome)
            finished += outcome.status == "done"
            failed += outcome.status == "failed"
    return finished, failed


def _inline(
    cells: list[Cell], study: str, store: Store, data_dir: Path, execution: Execution, workers: int, display: Display
) -> Iterator[RunRecord | FailureRecord]:
    for cell in cells:
        display.start(cell)
        outcome = run(cell, study, data_dir, execution, display.event)
        store.write(outcome)
        yield outcome


def _local(
    cells: list[Cell], study: str, store: Store, data_dir: Path, execution: Execution, workers: int, display: Display
) -> Iterator[RunRecord | FailureRecord]:
    # A fork server has torch imported already but has run nothing: each run starts clean and at once.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOAD)
    waiting = list(reversed(cells))
    running: dict[Connection, tuple[Cell, ForkServerProcess]] = {}
    try:
        while waiting or running:
            while waiting and len(running) < workers:
                cell = waiting.pop()
                receiver, sender = context.Pipe(duplex=False)
                process = context.Process(
                    target=_child, args=(cell, study, store.root, data_dir, execution, sender), daemon=True
                )
                process.start()
                sender.close()
                running[receiver] = (cell, process)
                display.start(cell)
            for ready in wait(list(running)):
                assert isinstance(ready, Connection)
                cell, process = running[ready]
                try:
                    message = ready.recv()
                except EOFError:
                    process.join()
                    del running[ready]
                    outcome = failure(cell, study, execution, "ProcessDied", _how_it_died(process.exitcode))
                    store.write(outcome)
                    yield outcome
                    continue
                if isinstance(message, Event):
                    display.event(message)
                else:
                    process.join()
                    del running[ready]
                    if isinstance(message, VitinitError):
                        raise message
                    yield message
    finally:
        for _, process in running.values():
            process.terminate()
        for _, process in running.values():
            process.join()


def _child(cell: Cell, study: str, root: Path, data_dir: Path, execution: Execution, sender: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole terminal group; the parent decides

    def send(message: object) -> None:
        try:
            sender.send(message)
        except BrokenPipeError:
            sys.exit(1)  # nobody is listening any more

    outcome = run(cell, study, data_dir, execution, send)
    try:
        Store(root).write(outcome)
    except VitinitError as error:
        send(error)
    else:
        send(outcome)


def _how_it_died(exitcode: int | None) -> str:
    if exitcode is not None and exitcode < 0:
        return f"its process was killed by {signal.Signals(-exitcode).name}" + (
            " (out of memory?)" if -exitcode == signal.SIGKILL else ""
        )
    return f"its process ended with exit code {exitcode} and no record"


@contextmanager
def _sigterm_is_ctrl_c() -> Iterator[None]:
    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
