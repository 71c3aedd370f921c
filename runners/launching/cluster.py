"""The executor `slurm`: runs as jobs of SLURM, handed over and followed from here; and what such a job does."""

from __future__ import annotations

import os
import signal
import sys
import time
import uuid
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path

from vitinit.benchmark.grids.schema import Cell, Grid
from vitinit.benchmark.records.record import FailureRecord, RunRecord
from vitinit.benchmark.records.store import Store
from vitinit.benchmark.terminal import Terminal
from vitinit.initializers.errors import VitinitError
from vitinit.runners.basics.environment import ROOT, source_hash
from vitinit.runners.basics.gpu import BrokenDevice
from vitinit.runners.basics.machine import lacks_compiler
from vitinit.runners.basics.setting import End, Setting, Unfinished
from vitinit.runners.basics.stop import Stop, on_signals
from vitinit.runners.launching import jobs
from vitinit.runners.launching.execute import execute
from vitinit.runners.launching.local import Local
from vitinit.runners.launching.plan import plan
from vitinit.runners.one_run import claims, lost
from vitinit.runners.one_run.lost import persistently
from vitinit.runners.one_run.outcome import failure, now
from vitinit.runners.terminal.display import Display
from vitinit.slurm import jobs as slurm_jobs
from vitinit.slurm.errors import Refused
from vitinit.slurm.profiles import Profile
from vitinit.slurm.submit import submit
from vitinit.slurm.task import export_ranks

BUSY_S = 600.0
"""Short runs are packed so that a job is busy for about so long: to start one takes seconds."""

LOOK_S = 5.0
"""Seconds between two looks at the jobs that are waited for."""

OUT_OF_MEMORY = r"oom.kill event|exceeded (job )?memory limit"
"""Line that slurmstepd writes into the log of a job that it ends."""


@dataclass(frozen=True)
class Cluster:
    """Jobs of SLURM, a pack of runs each. They go on when the launcher ends."""

    packs: list[list[Cell]]
    """The runs that are handed over; any others are in jobs already."""
    profile: Profile
    """Resources that a job requests."""
    workers: int
    """Number of runs that a job carries out at once."""
    code: Path
    """The code that the jobs run, as `snapshot.take` gives it."""
    lock: claims.Claim
    """Keeps other launchers from handing out the study; let go of once the runs are handed over."""
    wait: bool
    """Follow the runs to their ends."""

    def ends(self, cells: list[Cell], setting: Setting, display: Display, stop: Stop) -> Generator[End, None, None]:
        """See `execute.Executor`; nothing is yielded unless the runs are waited for."""
        if self.packs:
            logs, dispatched = dispatch(self.packs, setting, self.workers, self.profile, self.code)
            ids = list(dispatched.jobs)
            several = f"s {ids[0]} to {ids[-1]}" if len(ids) > 1 else f" {ids[0]}"
            display.say(f"handed to SLURM: job{several}; logs: {logs}")
            display.say("see: vitinit status, vitinit slurm logs, vitinit slurm cancel")
        self.lock.finish()
        if self.wait:
            try:
                yield from _followed(cells, setting, display)
            except KeyboardInterrupt:
                cancel = f"vitinit slurm cancel {setting.study}"
                raise KeyboardInterrupt(f"the jobs go on without this command; {cancel} ends them") from None


def _followed(cells: list[Cell], setting: Setting, display: Display) -> Iterator[End]:
    """Yield the end of each run, until none of them is queued or live."""
    store, left, quiet = Store(setting.root), {cell.run_id: cell for cell in cells}, 0
    reasons: dict[str, str] = {}
    while left and quiet < 2:  # between two states of a job squeue may not show it for a moment
        time.sleep(LOOK_S)
        planned, _ = plan(Grid(setting.study, "", list(left.values()), []), store, setting.data_dir)
        reasons = {item.cell.run_id: item.reason for item in planned}
        for item in planned:
            if item.state in ("done", "failed"):
                end = store.outcome(setting.study, item.cell.run_id)
                if isinstance(end, RunRecord | FailureRecord):
                    display.start(left.pop(end.run_id))
                    yield end
        quiet = 0 if {"queued", "live"} & {item.state for item in planned} else quiet + 1
    for cell in left.values():
        display.start(cell)
        yield Unfinished(cell.run_id, "stopped", reasons[cell.run_id] or "no job of it is left")


@dataclass(frozen=True)
class Pack:
    """The runs of one job, in order, and how they are carried out; picklable."""

    cells: tuple[Cell, ...]
    setting: Setting
    workers: int
    """Number of runs carried out at once."""
    source: str
    """`source_hash` of the code that the job has to run."""


def packed(cells: list[Cell], work: dict[str, float], count: int) -> list[list[Cell]]:
    """Share runs out to so many jobs, each about equally long: the longest first, always to the job with least.

    Args:
        cells: the runs.
        work: how long each takes by run_id, in any unit.
        count: of jobs, at most as many as there are runs.
    """
    packs: list[list[Cell]] = [[] for _ in range(count)]
    load = [0.0] * count
    for cell in sorted(cells, key=lambda cell: -work[cell.run_id]):
        least = min(range(count), key=lambda number: (load[number], len(packs[number])))
        packs[least].append(cell)
        load[least] += work[cell.run_id]
    return packs


def runs_per_job(seconds: dict[str, float], runs: int, profile: Profile, workers: int) -> int:
    """Return the number of runs of a job: enough to keep it busy for BUSY_S, fewer than fill half its time.

    Args:
        seconds: what runs take, as measured; where nothing is measured a run is a job, unless several run at once.
        runs: how many there are.
        profile: with the time limit.
        workers: how many of them a job carries out at once.
    """
    if not seconds:
        return min(workers, runs)
    one = sum(seconds.values()) / len(seconds) / workers
    return max(workers, min(runs, round(BUSY_S / one), int(30 * profile.minutes / one)))


def dispatch(
    packs: list[list[Cell]], setting: Setting, workers: int, profile: Profile, code: Path
) -> tuple[Path, jobs.Dispatch]:
    """Hand runs to the cluster, a pack a job.

    Args:
        packs: the runs of each job.
        setting: where and how; its paths are absolute.
        workers: how many runs a job carries out at once.
        profile: what a job asks for.
        code: the code that the jobs run, as `snapshot.take` gives it.

    Raises:
        SlurmError: the cluster does not answer.
        Refused: it has taken some of the jobs only.
        VitinitError: the results folder cannot be written, or the copy is not the code that `setting` says.
    """
    written = now()
    stamp = datetime.now(timezone.utc).strftime("%Y%m%d-%H%M%S")
    folder = jobs.folder(setting.root, setting.study) / f"{stamp}-{uuid.uuid4().hex[:6]}"
    name = f"{setting.study}-{folder.name[-6:]}"
    source = source_hash(code / "vitinit")
    if source != setting.code["source"]:
        raise VitinitError("the code has been changed while this command was at work; call it again")
    arguments = [Pack(tuple(cells), setting, workers, source) for cells in packs]
    refused, job_ids = None, []
    try:
        folder.mkdir(parents=True)
        try:
            with _interruptible():
                job_ids = submit(carry_out_pack, arguments, profile, folder, name=name, code=code)
        except Refused as error:
            refused, job_ids = error, error.submitted
        taken = zip(job_ids, packs, strict=False)  # fewer when the cluster refused the others
        by_job = {job_id: tuple(cell.run_id for cell in cells) for job_id, cells in taken}
        dispatched = jobs.Dispatch(written=written, name=name, profile=profile.name, code=str(code), jobs=by_job)
        jobs.write(folder, dispatched)
    except OSError as error:
        slurm_jobs.cancel(job_ids)  # nobody would know of them
        raise VitinitError(f"cannot write to {folder}: {error.strerror or error}") from None
    if refused:
        raise refused
    return folder, dispatched


@contextmanager
def _interruptible() -> Iterator[None]:
    """A closed terminal and `kill` are as Ctrl-C here: what was submitted is cancelled, as nobody would know of it."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def carry_out_pack(pack: Pack) -> None:
    """Carry out the runs of a pack, as a job, or go on with them.

    Before its time limit, and when it is preempted, the cluster sends a signal: the runs save and stop, and the job
    asks to be started again. Runs that the limit has stopped before they came a step further have failed: they would do
    so for ever. On a node whose GPU does not compute no run has failed: the job asks to be started again.
    """
    stop, before = Stop(), _reached(pack)
    rank = os.environ.get("SLURM_PROCID", "0")
    with on_signals(stop, impatient=False):
        try:
            _carry_out(pack, stop)
        except KeyboardInterrupt as interrupt:
            stop.request(str(interrupt) or "SIGINT")
        except BrokenDevice as error:
            print(error, flush=True)
            sys.exit(0 if lost.requeue() else 1)
        except VitinitError as error:
            if rank == "0":
                _record_failures(pack, pack.cells, "VitinitError", str(error))
            raise
    if not stop.reason or rank != "0":
        return  # rank 0 speaks for the job; to end as failed before it has would end it
    print(f"stopped by {stop.reason}; what had begun is saved", flush=True)
    preempted = persistently(slurm_jobs.preempted_current)
    if preempted or (stop.reason.startswith("SIGUSR2") and _reached(pack) != before):
        if persistently(slurm_jobs.requeue_current):
            sys.exit(0)
    elif stop.reason.startswith("SIGUSR2"):
        job_id = slurm_jobs.current()
        begun = [cell for cell in pack.cells if (owner := _last_owner(pack, cell)) and owner.job == job_id]
        message = f"not a single step could be saved within the time limit of its job {job_id}: ask for more time"
        _record_failures(pack, begun, "OutOfTime", message)
    sys.exit(1)


def _carry_out(pack: Pack, stop: Stop) -> None:
    if source_hash() != pack.source:
        raise VitinitError(f"the code in {ROOT} is not what this job was submitted with")
    execution = pack.setting.execution
    if execution.compiled and (lacking := lacks_compiler(execution.device)):
        raise VitinitError(f"--compile: {lacking}")
    _, processes = export_ranks()
    # The datasets were read before the pack was handed out, and each run reads its own and fails by itself.
    cells, setting, display = list(pack.cells), pack.setting, Display(Terminal(160))
    if processes == 1:
        execute(cells, setting, Local(pack.workers), display, stop=stop)
        return
    from vitinit.runners.launching.inline import Inline, follow, led, shared

    with led(setting.execution.device) as world:
        if world.rank:
            follow(world)
        else:
            setting = replace(setting, execution=shared(setting.execution, world))
            execute(cells, setting, Inline(world), display, stop=stop)


def _reached(pack: Pack) -> set[str]:
    """Return the progress of a pack: its records, and the names of its checkpoints, which hold the step."""
    store, study = Store(pack.setting.root), pack.setting.study
    found = set()
    for cell in pack.cells:
        recorded = store.outcome(study, cell.run_id)
        found |= {f"{cell.run_id} {recorded.status} {recorded.written}"} if recorded else set()
        found |= {str(path) for path in claims.folder(store.root, study, cell.run_id).glob("step-*.ckpt")}
    return found


def _last_owner(pack: Pack, cell: Cell) -> claims.Owner | None:
    return claims.last(claims.folder(pack.setting.root, pack.setting.study, cell.run_id))


def _record_failures(pack: Pack, cells: Iterable[Cell], error: str, message: str) -> None:
    """Some of a pack's runs have failed for one reason; those that another job is carrying out have not."""
    store, setting = Store(pack.setting.root), pack.setting
    for cell in cells:
        folder = claims.folder(setting.root, setting.study, cell.run_id)
        with suppress(claims.Taken), claims.held(folder, Stop()):
            recorded = store.outcome(setting.study, cell.run_id)
            tried = isinstance(recorded, FailureRecord) and recorded.written != setting.retried.get(cell.run_id)
            if not tried and not isinstance(recorded, RunRecord):
                store.write(failure(cell, setting, error, message))


def settle(cells: list[Cell], setting: Setting) -> dict[str, FailureRecord]:
    """Record as failed the runs whose job the cluster ended for its use of memory: they would do so again.

    Args:
        cells: runs without a record, of which no job is left.
        setting: where and how they were to be carried out.

    Returns:
        Their new records, by run_id.
    """
    handed = jobs.look(setting.root, setting.study).handed
    states = slurm_jobs.ended({handed[cell.run_id].job_id for cell in cells if cell.run_id in handed}) or {}
    found = {}
    for cell in cells:
        job = handed.get(cell.run_id)
        # the job's other runs had not begun, or have been saved and let go of
        owner = claims.last(claims.folder(setting.root, setting.study, cell.run_id))
        if not job or not owner or owner.released or owner.job != job.job_id:
            continue
        state = states.get(job.job_id)
        # without an accounting, or without cgroups, only the job's log tells
        if (state and state.name == job.name and state.state == "OUT_OF_MEMORY") or jobs.log_tells(job, OUT_OF_MEMORY):
            message = f"its job {job.job_id} on {owner.host} used more memory than it had asked for"
            found[cell.run_id] = failure(cell, setting, "OutOfMemory", message)
            Store(setting.root).write(found[cell.run_id])
    return found
