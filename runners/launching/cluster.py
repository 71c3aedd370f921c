"""Runs as jobs of SLURM: handed over and followed from here; and what such a job does."""

from __future__ import annotations

import os
import re
import shutil
import sys
import time
import uuid
from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path

from vitinit.benchmark.grids.schema import Cell, Grid
from vitinit.benchmark.records.record import FailureRecord, RunRecord
from vitinit.benchmark.records.store import Contents, Store
from vitinit.benchmark.terminal import Terminal
from vitinit.initializers.errors import VitinitError, count
from vitinit.runners.basics.environment import IMPORTED_FROM, ROOT, source_hash
from vitinit.runners.basics.gpu import BrokenDevice
from vitinit.runners.basics.setting import End, Setting, Unfinished
from vitinit.runners.basics.stop import Stop, on_signals
from vitinit.runners.launching import jobs
from vitinit.runners.launching.execute import execute, record_failure
from vitinit.runners.launching.local import Local
from vitinit.runners.launching.plan import Planned, plan
from vitinit.runners.launching.preflight import preflight
from vitinit.runners.one_run import claims, lost
from vitinit.runners.one_run.lost import persistently
from vitinit.runners.one_run.outcome import failure, now
from vitinit.runners.terminal.display import Display
from vitinit.slurm import jobs as slurm_jobs
from vitinit.slurm.profiles import Profile
from vitinit.slurm.submit import script, submit
from vitinit.slurm.task import export_ranks

LOOK_S = 5.0
"""Seconds between two looks at the jobs that are waited for."""

OUT_OF_MEMORY = re.compile(r"^slurmstepd.*(oom.kill event|exceeded (job )?memory limit)", re.IGNORECASE | re.MULTILINE)
"""Line that slurmstepd writes into the log of a job that it ends."""

PACKAGES = ("initializers", "benchmark", "slurm", "runners")
"""Packages of `vitinit` that a job imports. Plug-ins and libraries are imported from where they are."""


@dataclass(frozen=True)
class Pack:
    """The runs of one job, in order, and how they are carried out; picklable."""

    cells: tuple[Cell, ...]
    setting: Setting
    workers: int
    """Number of runs carried out at once."""


def packed(cells: list[Cell], setting: Setting, profile: Profile, workers: int) -> tuple[list[Pack], str]:
    """Return the runs of each job, dealt out in turn, and one line on them."""
    preflight(cells, setting)
    number = -(-len(cells) // (profile.runs_per_job or workers))
    packs = [Pack(tuple(cells[at::number]), setting, workers) for at in range(number)]
    at_once = f", {workers} at once" if workers > 1 else ""
    return packs, (
        f"{count(len(cells), 'run')} in {count(number, 'job')} of up to {len(packs[0].cells)} on "
        f"{setting.execution.device}{at_once}; profile {profile.name}"
    )


def shown(cells: list[Cell], setting: Setting, profile: Profile, workers: int) -> str:
    """Return what would be handed over, and the script that sbatch would get, of one array."""
    packs, said = packed(cells, setting, profile, workers)
    folder = jobs.folder(setting.root, setting.study) / "TIME"
    return f"{said}\n{script(profile, len(packs), folder, setting.study, folder / 'code')}"


def hand_over(cells: list[Cell], setting: Setting, profile: Profile, workers: int, display: Display) -> None:
    """Hand runs to the cluster, a pack a job, with a copy of the code. The jobs go on when the launcher ends.

    Raises:
        SlurmError: the cluster does not answer, or does not take the jobs.
        VitinitError: the results folder cannot be written, or the code has been changed since `setting` was made.
    """
    packs, said = packed(cells, setting, profile, workers)
    display.say(said)
    stamp = datetime.now(timezone.utc).strftime("%Y%m%d-%H%M%S")
    folder = jobs.folder(setting.root, setting.study) / f"{stamp}-{uuid.uuid4().hex[:6]}"
    name, code = f"{setting.study}-{folder.name[-6:]}", folder / "code"
    job_ids: list[str] = []

    def interrupt() -> None:
        raise KeyboardInterrupt  # what was submitted is cancelled, as nobody would know of it

    try:
        for package in PACKAGES:
            here, there = (root / "vitinit" / package for root in (IMPORTED_FROM, code))
            shutil.copytree(here, there, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(IMPORTED_FROM / "vitinit" / "__init__.py", code / "vitinit")
        if source_hash(code / "vitinit") != setting.code["source"]:
            raise VitinitError("the code has been changed while this command was at work; call it again")
        with on_signals(Stop(interrupt)):
            job_ids = submit(carry_out_pack, packs, profile, folder, name=name, code=code)
        of_each = zip(job_ids, [tuple(cell.run_id for cell in pack.cells) for pack in packs], strict=True)
        fields = {"name": name, "written": now(), "folder": folder}
        jobs.write(folder, tuple(jobs.Job(job_id=job_id, run_ids=run_ids, **fields) for job_id, run_ids in of_each))
    except OSError as error:
        slurm_jobs.cancel(job_ids)  # nobody would know of them
        raise VitinitError(f"cannot write to {folder}: {error.strerror or error}") from None
    several = f"s {job_ids[0]} to {job_ids[-1]}" if len(job_ids) > 1 else f" {job_ids[0]}"
    display.say(f"handed to SLURM: job{several}; logs: {folder}")
    display.say("see: vitinit status, vitinit slurm cancel")


class Followed:
    """Runs that were handed over: they are waited for here."""

    def ends(self, cells: list[Cell], setting: Setting, display: Display, stop: Stop) -> Generator[End, None, None]:
        """See `execute.Executor`; yields the end of each run, until none of them is queued or live."""
        store, left, quiet = Store(setting.root), {cell.run_id: cell for cell in cells}, 0
        reasons: dict[str, str] = {}
        try:
            while left and quiet < 2:  # between two states of a job squeue may not show it for a moment
                time.sleep(LOOK_S)
                planned, _ = plan(Grid(setting.study, "", list(left.values())), store, setting.data_dir)
                reasons = {item.cell.run_id: item.reason for item in planned}
                for item in planned:
                    end = store.outcome(setting.study, item.cell.run_id) if item.state in ("done", "failed") else None
                    if isinstance(end, RunRecord | FailureRecord):
                        del left[end.run_id]
                        yield end
                quiet = 0 if {"queued", "live"} & {item.state for item in planned} else quiet + 1
        except KeyboardInterrupt:
            cancel = f"vitinit slurm cancel {setting.study}"
            raise KeyboardInterrupt(f"the jobs go on without this command; {cancel} ends them") from None
        for run_id in left:
            yield Unfinished(run_id, "stopped", reasons[run_id] or "no job of it is left")


def carry_out_pack(pack: Pack) -> None:
    """Carry out the runs of a pack, as a job, or go on with them.

    Before its time limit, and when it is preempted, the cluster sends a signal: the runs save and stop, and the job
    asks to be started again. Runs that the limit has stopped before they came a step further have failed: they would do
    so for ever. On a node whose GPU does not compute no run has failed: the job asks to be started again.
    """
    stop, before = Stop(), _reached(pack)
    leads = os.environ.get("SLURM_PROCID", "0") == "0"
    with on_signals(stop):
        try:
            _carry_out(pack, stop)
        except KeyboardInterrupt as interrupt:
            stop.request(str(interrupt) or "SIGINT")
        except BrokenDevice as error:
            print(error, flush=True)
            sys.exit(0 if lost.requeue() else 1)
        except VitinitError as error:
            if leads:
                for cell in pack.cells:
                    record_failure(cell, pack.setting, "VitinitError", str(error))
            raise
    if not stop.reason or not leads:
        return  # rank 0 speaks for the job; to end as failed before it has would end it
    print(f"stopped by {stop.reason}; what had begun is saved", flush=True)
    at_limit = stop.reason.startswith("SIGUSR2")
    if persistently(slurm_jobs.preempted_current) or (at_limit and _reached(pack) != before):
        if persistently(slurm_jobs.requeue_current):
            sys.exit(0)
    elif at_limit:
        job_id = slurm_jobs.current()
        message = f"not a single step could be saved within the time limit of its job {job_id}: ask for more time"
        for cell in pack.cells:
            if (owner := claims.last(_folder(pack, cell))) and owner.job == job_id:
                record_failure(cell, pack.setting, "OutOfTime", message)
    sys.exit(1)


def _carry_out(pack: Pack, stop: Stop) -> None:
    cells, setting, display = list(pack.cells), pack.setting, Display(Terminal(160))
    if source_hash() != setting.code["source"]:
        raise VitinitError(f"the code in {ROOT} is not what this job was submitted with")
    _, processes = export_ranks()
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


def _folder(pack: Pack, cell: Cell) -> Path:
    return claims.folder(pack.setting.root, pack.setting.study, cell.run_id)


def _reached(pack: Pack) -> set[str]:
    """Return the progress of a pack: its records, and the names of its checkpoints, which hold the step."""
    store, found = Store(pack.setting.root), set()
    for cell in pack.cells:
        recorded = store.outcome(pack.setting.study, cell.run_id)
        found |= {f"{cell.run_id} {recorded.status} {recorded.written}"} if recorded else set()
        found |= {str(path) for path in _folder(pack, cell).glob("step-*.ckpt")}
    return found


def settle(planned: list[Planned], contents: Contents, setting: Setting) -> Iterator[Planned]:
    """Record as failed, in `contents` too, runs whose job the cluster ended for its use of memory.

    They would do so again.
    """
    handed = jobs.handed(jobs.look(setting.root, setting.study))
    for item in planned:
        run_id = item.cell.run_id
        folder = claims.folder(setting.root, setting.study, run_id)
        job, owner = handed.get(run_id), claims.last(folder)
        # the job's other runs had not begun, or have been saved and let go of
        if item.state == "to do" and job and owner and not claims.released(folder) and owner.job == job.job_id:
            # without an accounting, or without cgroups, only the job's log tells
            logs = [path.read_text("utf-8", "replace") for path in slurm_jobs.log_files(job.folder, job.job_id)]
            if "OUT_OF_MEMORY" in item.reason or any(map(OUT_OF_MEMORY.search, logs)):
                message = f"its job {job.job_id} on {owner.host} used more memory than it had asked for"
                failed = contents.failed[run_id] = failure(item.cell, setting, "OutOfMemory", message)
                Store(setting.root).write(failed)
                item = replace(item, state="failed", reason=f"{failed.error}: {message}")
        yield item
