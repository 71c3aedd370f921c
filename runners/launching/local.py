"""Carrying out the runs of a study on this machine, in this process or in several.

Only a process that trains imports torch, which takes seconds: that of a run, or this one with the executor `inline`.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import tempfile
import threading
import time
from collections.abc import Generator
from dataclasses import dataclass, replace
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmark.datasets.files import unavailable
from benchmark.grids.grid import Cell
from benchmark.records.record import FailureRecord, RunRecord
from benchmark.records.store import Layout, Store
from benchmark.spec import DatasetSpec, RunSpec
from initializers.errors import VitinitError
from runners.basics.setting import End, Ended, Event, Setting
from runners.basics.stop import SIGNALS, Stop, on_signals
from runners.one_run import claims
from runners.one_run.outcome import failure
from runners.terminal.display import Display

if TYPE_CHECKING:
    from runners.training.distributed import World

END_S = 10.0
"""Seconds that the process of a run has to end after its last word."""

OUT_OF_MEMORY = "OutOfMemoryError"
"""Of torch."""

PRELOAD = [
    "runners.launching.together",
    "runners.launching.preflight",
    "sklearn.datasets",
    "sklearn.model_selection",
    "torchvision.datasets",
]


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


def launch(
    cells: list[Cell],
    setting: Setting,
    workers: int,
    display: Display,
    world: World | None = None,
    stop: Stop | None = None,
    work: dict[str, float] | None = None,
    layout: Layout | None = None,
) -> Tally:
    """Carry out runs; each leaves a record.

    The executor `inline` runs one after the other in this process, or in all processes of a world, whose others follow
    this one. Any other keeps `workers` processes busy, a fresh one a run, each with its share of the cores; a process
    that dies becomes a failure record. Runs of other launchers are left to them, unless they come free. Of several runs
    on one GPU, those that it had no memory for are tried again one by one.

    Args:
        cells: the runs.
        setting: where and how.
        workers: how many at once.
        display: told what happens.
        world: the processes that carry out a run together.
        stop: a request that counts besides the signals.
        work: how long each run takes by run_id, in any unit; the longest come first. None: every dataset is read to
            find out.
        layout: of the grid, to be put down beside the records. None: what stands there is left as it is.

    Raises:
        VitinitError: a dataset cannot be read to find out, or the results folder cannot be written.
        KeyboardInterrupt: on Ctrl-C, SIGTERM, SIGUSR2 or SIGHUP; runs in progress have saved where they were.
    """
    if work is None:
        images = _preflight(cells, setting, stop)
        work = {cell.run_id: estimated_work(cell.spec, images[cell.spec.dataset]) for cell in cells}
    check_writable(setting.root / setting.study)
    if layout:
        Store(setting.root).write_layout(setting.study, layout)
    cells = sorted(cells, key=lambda cell: -work[cell.run_id])  # so that no long one is left over alone
    tally = Tally()

    def carry_out_all(cells: list[Cell]) -> Generator[End, None, None]:
        if setting.execution.executor == "inline":
            return _inline(cells, setting, display, world, stop)
        return _local(cells, setting, workers, display, stop)

    with display:
        display.begin(cells, work)
        while cells:
            by_id = {cell.run_id: cell for cell in cells}
            elsewhere, crowded = [], {}
            with contextlib.closing(carry_out_all(cells)) as ends:
                for end in ends:
                    display.end(end)
                    if workers > 1 and isinstance(end, FailureRecord) and end.error == OUT_OF_MEMORY:
                        crowded[end.run_id] = end.written
                        continue
                    tally.finished += end.status == "done"
                    tally.failed += end.status == "failed"
                    tally.stopped += end.status == "stopped"
                    elsewhere += [by_id[end.run_id]] if end.status == "elsewhere" else []
            cells = came_free(elsewhere, setting)
            tally.elsewhere += len(elsewhere) - len(cells)
            if crowded:
                cells, workers = [*cells, *(by_id[run_id] for run_id in crowded)], 1
                setting = replace(setting, retried=setting.retried | crowded)
    return tally


def came_free(cells: list[Cell], setting: Setting) -> list[Cell]:
    """Runs that other launchers had and have not ended. Waits for owners that are silent: they may be gone."""
    store = Store(setting.root)

    def ended(cell: Cell) -> bool:
        recorded = store.outcome(setting.study, cell.spec.run_id)
        failed = isinstance(recorded, FailureRecord) and recorded.written != setting.retried.get(cell.spec.run_id)
        return failed or isinstance(recorded, RunRecord)

    while True:
        open_cells = [cell for cell in cells if not ended(cell)]
        folders = [claims.folder(setting.root, setting.study, cell.spec.run_id) for cell in open_cells]
        free = [cell for cell, folder in zip(open_cells, folders, strict=True) if claims.live(folder) is None]
        if free or all(map(claims.beating, folders)):
            return free
        time.sleep(1)


def forced(prefixes: list[str], cells: list[Cell], data_dir: Path) -> dict[str, Cell]:
    """By prefix of `--force`, the run that it names.

    Raises:
        VitinitError: a prefix names no run of the grid or several, or the run cannot be carried out now.
    """
    runs = {}
    for prefix in prefixes:
        found = [cell for cell in cells if cell.run_id.startswith(prefix)]
        if len(found) != 1:
            how_many = f"{len(found)} runs of this grid" if found else "no run of this grid"
            raise VitinitError(f"--force {prefix}: {how_many}; see: vitinit plan")
        (cell,) = found
        if reason := cell.misfit or unavailable(cell.spec.dataset, data_dir):
            raise VitinitError(f"--force {prefix}: {reason}")
        runs[prefix] = cell
    return runs


def begin_anew(runs: dict[str, Cell], store: Store, study: str) -> None:
    """Put runs back to their start: records are set aside under another name, checkpoints are removed.

    Raises:
        VitinitError: another launcher is carrying a run out, or a file cannot be renamed.
    """
    for prefix, cell in runs.items():
        try:
            with claims.held(claims.folder(store.root, study, cell.run_id), Stop()) as claim:
                for checkpoint in claim.path.parent.glob("step-*.ckpt"):
                    checkpoint.unlink()
                store.supersede(study, cell.run_id)
                claim.finish()
        except OSError as error:
            raise VitinitError(f"--force {prefix}: {error}") from None
        except claims.Taken as taken:
            raise VitinitError(f"--force {prefix}: {taken}") from None


def tidy(root: Path, study: str, done: set[str]) -> None:
    """Remove what recorded runs have left behind: they were killed between their record and their own tidying."""
    store = Store(root)
    for folder in (root / study / "unfinished").glob("*"):
        if folder.name in done:
            with contextlib.suppress(claims.Taken, VitinitError), claims.held(folder, Stop()) as claim:
                if isinstance(store.outcome(study, folder.name), RunRecord):
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


def _inline(
    cells: list[Cell], setting: Setting, display: Display, world: World | None, parent: Stop | None
) -> Generator[End, None, None]:
    from runners.launching.together import in_turn, lead
    from runners.training.distributed import ALONE

    stop, world = Stop(parent=parent), world or ALONE
    with on_signals(stop, impatient=world.size == 1):
        lead(cells, setting, world)
        yield from in_turn(cells, setting, stop, display.event, world, display.start)
        if stop.reason:
            raise KeyboardInterrupt(stop.reason)


def _local(
    cells: list[Cell], setting: Setting, workers: int, display: Display, parent: Stop | None
) -> Generator[End, None, None]:
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
                    if owner := claims.live(claims.folder(setting.root, setting.study, cell.spec.run_id)):
                        yield Ended(cell.spec.run_id, "elsewhere", f"being run by {owner.describe()}")
                        continue
                    try:
                        receiver, process = _start(context, cell, setting)
                    except VitinitError as error:
                        if not stop.reason:
                            raise
                        display.end(Ended(cell.spec.run_id, "stopped", str(error)))
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
                        trouble, message = message, Ended(run.cell.spec.run_id, "stopped", str(message))
                        waiting.clear()
                    yield message or _died(run, setting)
        finally:
            _stop(running, display, setting.grace_s)
        if stop.reason:
            raise KeyboardInterrupt(stop.reason)
    if trouble:
        raise trouble


@dataclass(frozen=True)
class _Running:
    cell: Cell
    process: ForkServerProcess


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
        return Ended(run_id, "stopped", f"{_how_it_died(code)} before it had begun")
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
        return Ended(run_id, "elsewhere", str(taken))


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
                    message = Ended(run_id, "stopped", str(message or "its process ended"))
                display.end(message)
    finally:
        for run in running.values():
            run.process.kill()
            display.end(
                Ended(run.cell.spec.run_id, "stopped", "killed before it had saved; its last checkpoint counts")
            )
        for run in running.values():
            run.process.join()


def _preflight(cells: list[Cell], setting: Setting, parent: Stop | None) -> dict[DatasetSpec, int]:
    """`preflight`, in a process that has torch; a request to stop ends it."""
    if not cells:
        return {}
    if setting.execution.executor == "inline":
        from runners.launching.preflight import preflight

        return preflight(cells, setting)
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
    from runners.launching.preflight import preflight

    answer: Any
    try:
        answer = preflight(cells, setting)
    except VitinitError as error:
        answer = error
    sender.send(answer)


def _child(cell: Cell, setting: Setting, sender: Connection) -> None:
    from runners.launching.together import to_its_end
    from runners.training.distributed import ALONE

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
