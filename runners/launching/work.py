"""Workers that pull: each takes the next run that nobody has recorded or is carrying out, until none is left.

Executors: `run_locally`, several runs at once, each in a process of its own that a fork server starts; and
`run_inline`, one after the other, in this process or in several that torchrun or a job started.
"""

import math
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from multiprocessing import forkserver, get_context, parent_process, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from vitinit.benchmark.datasets.registry import unavailable
from vitinit.benchmark.grids.schema import Cell
from vitinit.benchmark.records.record import RunRecord
from vitinit.initializers.errors import VitinitError, os_errors
from vitinit.runners.basics.environment import gpu_slots
from vitinit.runners.basics.setting import SIGNALS, End, Setting, Stop, Unfinished, failure, final_outcome, on_signals
from vitinit.runners.launching.view import Display
from vitinit.runners.one_run import claims

if TYPE_CHECKING:
    from vitinit.runners.training.distributed import World


def in_order(cells: list[Cell], seconds: dict[str, float]) -> tuple[Cell, ...]:
    """Sort runs seed by seed, so that a row that cannot run fails early; within a seed the longest first.

    The last two seeds count as one, as a long run that begins at the very end would keep all workers waiting.
    """
    seeds = sorted({cell.spec.seed for cell in cells})
    position = {seed: min(number, len(seeds) - 2) for number, seed in enumerate(seeds)}
    return tuple(sorted(cells, key=lambda cell: (position[cell.spec.seed], -seconds.get(cell.run_id, math.inf))))


@dataclass
class Queue:
    """Runs of a study in the order in which a worker takes them, and how they are carried out; picklable."""

    cells: Sequence[Cell]
    setting: Setting
    slots: int = 1
    """Number of runs that a worker carries out at once."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Time of runs by run_id, where records tell."""
    limit_s: float = math.inf
    """Time that a job has until it is told to stop."""
    began: float = field(default_factory=time.monotonic)
    """Start of that time, by this machine's monotonic clock."""
    taken: dict[str, set[Path]] = field(default_factory=dict)
    """Runs that this worker took, with the checkpoints that they had then."""
    ended: set[str] = field(default_factory=set)
    """Runs that are known to be recorded, by whomever."""
    declined: bool = False
    """True if a run was left alone because the rest of this job is too short for it."""

    def candidates(self) -> Iterator[Cell]:
        """Yield the runs that have no record and no live owner, and whose data are here."""
        setting = self.setting
        missing = cache(lambda dataset: unavailable(dataset, setting.data_dir))
        recorded, begun = (
            {path.name for path in setting.study_folder.glob(names)} for names in ("*.json", "unfinished/*")
        )
        for cell in self.cells:
            run_id = cell.run_id
            if run_id in self.ended:
                continue
            if recorded & {f"{run_id}.json", f"{run_id}.failed.json"} and final_outcome(cell, setting):
                self.ended.add(run_id)
                continue
            owned = run_id in begun and claims.live(setting.folder(run_id))
            if not owned and not missing(cell.spec.dataset):
                yield cell

    def next(self) -> Cell | None:
        """Take the next run; None where there is none now.

        Runs but the first are skipped that no longer fit into this job's time, but would fit into a new job.
        """
        spent_s = time.monotonic() - self.began
        for cell in self.candidates():
            if self.taken and self.limit_s - spent_s < self.seconds.get(cell.run_id, 0) <= self.limit_s:
                self.declined = True
            elif cell.run_id not in self.taken:
                self.taken[cell.run_id] = {*claims.checkpoints(self.setting.folder(cell.run_id))}
                return cell
        return None

    def stopped(self) -> list[Cell]:
        """Return the runs that this worker took and that have no record."""
        return [cell for cell in self.cells if cell.run_id in self.taken.keys() - self.ended]

    def progressed(self) -> bool:
        """Return True if a run that this worker took has ended, or has been saved at a later step."""
        folder = self.setting.folder
        saved = (claims.checkpoints(folder(run_id)).keys() - before for run_id, before in self.taken.items())
        return bool(self.ended & self.taken.keys()) or any(saved)


Executor = Callable[[Queue, Display, Stop], Generator[End, None, None]]
"""Function that carries runs of a queue out, tells the display what they say on the way, and yields how each ended:
`run_inline`, `run_locally` or `cluster.follow_jobs`. It raises

- VitinitError: the results folder cannot be written, or nothing can be started;
- KeyboardInterrupt: a stop was asked for; runs in progress have saved where they were."""


@dataclass
class Tally:
    """Counts of how the runs of one launch ended."""

    finished: int = 0
    failures: list[str] = field(default_factory=list)
    """The run_ids of those that failed, after a launch those of before too."""
    stopped: int = 0
    """Asked to stop, one by one; a stop of the whole launch is a KeyboardInterrupt."""

    @property
    def exit_code(self) -> int:
        """Return 1 where a run has failed, now or before, or was stopped; else 0."""
        return int(bool(self.failures or self.stopped))


def work(queue: Queue, executor: Executor, display: Display, stop: Stop | None = None) -> Tally:
    """Carry out runs, each to its record, until none is left that others do not have.

    Args:
        queue: the runs.
        executor: carries them out.
        display: told what happens.
        stop: a request that counts besides the signals.

    Raises:
        VitinitError: the results folder cannot be written, or the data of a run cannot be read.
        KeyboardInterrupt: on Ctrl-C, SIGTERM, SIGUSR2 or SIGHUP; runs in progress have saved where they were.
    """
    setting, tally, refused = queue.setting, Tally(), ""
    check_writable(setting.study_folder)
    with display:
        display.begin(queue.cells)
        with closing(executor(queue, display, stop or Stop())) as ends:
            for end in ends:
                if end.status == "elsewhere":  # another was faster
                    del queue.taken[end.run_id]
                    continue
                display.end(end)
                if isinstance(end, Unfinished):
                    tally.stopped += 1
                    if end.status == "refused":  # other data can be read
                        refused = end.reason
                    continue
                queue.ended.add(end.run_id)
                if end.status == "failed":
                    tally.failures.append(end.run_id)
                else:
                    tally.finished += 1
    if refused:
        raise VitinitError(refused)
    return tally


def record_failure(cell: Cell, setting: Setting, error: str, message: str) -> End:
    """Record that a run has failed, unless it is recorded already, or another worker has it."""
    try:
        with claims.held(setting.folder(cell.run_id), Stop()) as claim:
            recorded = final_outcome(cell, setting)
            if isinstance(recorded, RunRecord):
                claim.finish()
            if recorded:
                return recorded
            failed = failure(cell, setting, error, message, notes=claim.progress.notes)
            setting.store.write(failed)
            return failed
    except claims.Taken as taken:
        return Unfinished(cell.run_id, "elsewhere", str(taken))


def check_writable(folder: Path) -> None:
    """Find out before hours of training, not after.

    Raises:
        VitinitError: records cannot be written there, or a link in it leads elsewhere.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path in (folder, *folder.iterdir(), *folder.glob("tracking/*"), *folder.glob("tracking/*/*")):
            if path.is_symlink():
                raise VitinitError(f"{path} is a link, and what is written would lie elsewhere: remove it")
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"0" * 2**16)
    except OSError as error:
        raise claims.refused(folder, error) from None


LOOK_S = 0.5
"""Seconds between two looks at whether a stop was asked for."""
END_S = 10.0
"""Seconds that the process of a run has to end after its last word."""


def run_locally(queue: Queue, display: Display, stop: Stop) -> Generator[End, None, None]:
    """Carry out several runs at once, a fresh process a run; a process that dies becomes a failure record.

    Each process sees the GPU that has fewest runs. See `work.Executor`.
    """
    context, setting = fork_server(), queue.setting
    slots = [*(gpu_slots() if setting.execution.device == "cuda" else ())] or [None]
    running: dict[Connection, tuple[Cell, ForkServerProcess, str | None]] = {}
    trouble: VitinitError | None = None
    stop, deadline = Stop(parent=stop), math.inf
    with on_signals(stop):
        try:
            while True:
                if stop.reason and deadline == math.inf:  # every run may save and end
                    deadline = time.monotonic() + setting.grace_s
                    for _, process, _ in running.values():
                        process.terminate()
                while len(running) < queue.slots and not (trouble or stop.reason):
                    slot = min(slots, key=[gpu for *_, gpu in running.values()].count)
                    try:
                        if not (cell := queue.next()):
                            break
                        receiver, process = _start(context, cell, setting, slot)
                        running[receiver] = cell, process, slot
                    except VitinitError as error:
                        trouble = error
                if not running:
                    break
                ready = wait(list(running), LOOK_S)
                late = time.monotonic() > deadline
                for receiver, (cell, process, _) in list(running.items()):
                    if receiver not in ready and not late:
                        continue
                    message: claims.Progress | str | End | VitinitError | None = None
                    if receiver in ready:
                        with suppress(EOFError, OSError):  # its process died, maybe in the middle of a message
                            message = receiver.recv()
                    if isinstance(message, claims.Progress | str):
                        display.event(cell.run_id, message)
                        continue
                    process.join(END_S if receiver in ready else 0)
                    process.kill()
                    process.join()
                    receiver.close()
                    del running[receiver]
                    if isinstance(message, VitinitError):
                        # the results folder cannot be written: what runs may end, nothing more is started
                        trouble, message = message, Unfinished(cell.run_id, "stopped", str(message))
                    elif receiver not in ready:
                        why = "killed before it had saved; its last checkpoint counts"
                        message = Unfinished(cell.run_id, "stopped", why)
                    elif isinstance(message, Unfinished) and message.status == "stopped" and stop.reason:
                        # it was sent SIGTERM, whatever came here
                        message = replace(message, reason=stop.reason)
                    yield message or _died(cell, process.exitcode or 0, setting, stop)
        finally:
            for _, process, _ in running.values():
                process.kill()
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
    context = get_context("forkserver")
    context.set_forkserver_preload(["vitinit.runners.one_run.carry_out", "torchvision.datasets"])
    resource_tracker.ensure_running()  # the fork server starts it otherwise, and it unblocks signals on its way
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    folder = f"the folder for temporary files, {tempfile.gettempdir()}, holds no socket (set TMPDIR to another)"
    try:
        with os_errors(f"cannot start a process for the runs: {folder}"):
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


def _died(cell: Cell, code: int, setting: Setting, stop: Stop) -> End:
    """Record that a run's process died, unless the run was recorded before, or another launcher has it already."""
    number = next((known for known in signal.Signals if known == -code), None)
    how = f"its process was killed by {number.name}" if number else f"its process ended with exit code {code}"
    if stop.reason or number in SIGNALS:
        return Unfinished(cell.run_id, "stopped", f"{how} before it had begun")
    return record_failure(cell, setting, "ProcessDied", how + " (out of memory?)" * (number == signal.SIGKILL))


def _child(cell: Cell, setting: Setting, sender: Connection, slot: str | None, environment: dict[str, str]) -> None:
    os.environ.update(environment)  # the fork server has that of its own start
    if slot is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = slot  # CUDA reads it at its first call, which the fork server never makes
    from vitinit.runners.one_run.carry_out import carry_out

    stop = Stop()

    def send(message: object) -> None:
        with suppress(OSError):  # its launcher has gone
            sender.send(message)

    def outlive_nobody() -> None:
        if launcher := parent_process():
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


def run_inline(queue: Queue, display: Display, stop: Stop, world: "World | None" = None) -> Generator[End, None, None]:
    """Carry out runs in this process; in a world of several it is rank 0, and the others follow. A `work.Executor`."""
    from vitinit.runners.one_run.carry_out import carry_out
    from vitinit.runners.training.distributed import ALONE

    stop, world = Stop(parent=stop), world or ALONE
    with on_signals(stop):
        while not stop.reason and (cell := queue.next()):
            world.broadcast((cell, queue.setting))
            end = carry_out(cell, queue.setting, Stop(parent=stop), partial(display.event, cell.run_id), world)
            world.agreed(stop)
            yield end
        if stop.reason:
            raise KeyboardInterrupt(stop.reason)


@contextmanager
def led(setting: Setting) -> Iterator[tuple[Executor | None, Setting]]:
    """Join the processes that torchrun's environment variables describe, each with its share of the cores.

    Yields:
        In rank 0, which leads until the context ends, the executor, and the setting of its runs. In the others, once
        they have carried out, with rank 0, all runs that it took, None. They report what goes wrong, too.
    """
    from vitinit.runners.one_run.carry_out import carry_out
    from vitinit.runners.training.distributed import joined

    with joined(setting.execution.device) as world:
        if world.rank:
            stop = Stop()
            with on_signals(stop):
                while task := world.broadcast():
                    cell, led_setting = task
                    with suppress(VitinitError):
                        carry_out(cell, led_setting, Stop(parent=stop), world=world)
                        world.agreed(stop)
            yield None, setting
            return
        if world.size > 1:
            shared = replace(setting.execution, threads=world.threads, processes=world.size, nodes=world.nodes)
            setting = replace(setting, execution=shared)
        try:
            yield partial(run_inline, world=world), setting
        finally:
            world.broadcast()
