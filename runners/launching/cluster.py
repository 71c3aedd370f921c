"""Workers as jobs of SLURM: handed over and followed from here; and what such a job does."""

import json
import os
import shutil
import sys
import time
import uuid
from collections.abc import Generator
from dataclasses import replace

from vitinit.benchmark.terminal import Terminal, duration
from vitinit.initializers.errors import VitinitError, count, os_errors
from vitinit.runners.basics.environment import IMPORTED_FROM, ROOT, source_hash
from vitinit.runners.basics.setting import BrokenDevice, End, Stop, Unfinished, on_signals
from vitinit.runners.launching.view import RUNS, Display, View, job_name, jobs_of
from vitinit.runners.launching.work import Executor, Queue, led, record_failure, run_locally, work
from vitinit.runners.one_run import claims
from vitinit.runners.options import LaunchOptions, results_option
from vitinit.slurm import jobs as slurm_jobs
from vitinit.slurm.profiles import Profile, seconds
from vitinit.slurm.submit import export_ranks, ignored_variables, max_array_size, script, submit

LOOK_S = 5.0
"""Seconds between two looks at the jobs that are waited for."""


def hand_out(view: View, todo: Queue, options: LaunchOptions, display: Display, profile: Profile) -> Executor | None:
    """Hand workers to a cluster; return an executor that follows them, where that is asked for."""
    live = {cell.run_id for cell in view.cells("live")}
    todo = replace(
        todo,
        cells=tuple(cell for cell in todo.cells if cell.run_id not in live),
        limit_s=seconds(profile.time) - profile.signal_seconds,
    )
    setting = todo.setting
    number = wanted(todo, view, profile, options.add)
    if options.dry_run:
        if todo.cells:
            print(described(todo, number, profile))
            print(script(profile, number, setting.study_folder / "jobs/TIME", setting.study))
        return None
    if view.jobs.silence:
        raise VitinitError(
            f"whether jobs of {setting.study} wait or run is not known: {view.jobs.silence}. Call it again; if that "
            f"cluster is gone for good, remove {setting.study_folder / 'jobs'}"
        )
    for run_id, owner in view.owners.items():
        if view.jobs.over(owner):  # the next worker need not wait until its heartbeat is stale
            claims.bury(setting.folder(run_id), owner)
    if todo.cells and number:
        most = max_array_size()
        if options.add and number > most:
            raise VitinitError(f"--add {number}: an array of this cluster has at most {most} jobs")
        submit_workers(todo, min(number, most), profile, display)
        display.say(
            f"see: vitinit status {options.asked}; vitinit slurm cancel {setting.study}{results_option(setting.root)}"
        )
    elif todo.cells:
        display.say("its jobs will carry out what is to do; --add N hands more over")
    return follow_jobs if options.wait else None


def wanted(todo: Queue, view: View, profile: Profile, add: int | None) -> int:
    """Return the number of jobs to hand over: `add`, or one for each run until there are the profile's `jobs`.

    Jobs that wait or begin are counted for runs that they know of.
    """
    if add is not None:
        return add
    alive = view.jobs.alive
    idle = todo.slots * len(alive.keys() - {view.owners[cell.run_id].job for cell in view.cells("live")})
    known = {cell.run_id for cell in todo.cells} & (view.jobs.runs() - todo.setting.retried.keys())
    unknown = len(todo.cells) - len(known)
    needed = -(-(unknown + max(0, len(known) - idle)) // todo.slots)
    return min(needed, max(profile.jobs - len(alive), min(1, unknown)))


def described(todo: Queue, number: int, profile: Profile) -> str:
    """Return one line on the jobs to be handed over."""
    at_once = f", {todo.slots} at once" if todo.slots > 1 else ""
    return (
        f"{count(len(todo.cells), 'run')} for {count(number, 'job')} on {todo.setting.execution.device}{at_once}, each "
        f"of {duration(seconds(profile.time))} at most; profile {profile.name}"
    )


def submit_workers(todo: Queue, number: int, profile: Profile, display: Display) -> None:
    """Hand workers to the cluster, with a copy of the code. They go on when the launcher ends.

    Raises:
        SlurmError: the cluster does not answer, or does not take the jobs.
        VitinitError: the results folder cannot be written.
    """
    setting = todo.setting
    display.say(described(todo, number, profile))
    if ignored := ignored_variables(profile):
        display.say(f"the profile says what jobs ask for, and not {', '.join(ignored)} of this shell", "yellow")
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    folder = setting.study_folder / "jobs" / f"{stamp}-{uuid.uuid4().hex[:6]}"
    name = job_name(folder)

    class Interrupt(Stop):
        def request(self, reason: str) -> None:
            raise KeyboardInterrupt

    try:
        with os_errors(f"cannot write to {folder}"), on_signals(Interrupt()):
            folder.mkdir(0o700, parents=True)  # who shares the study cannot change what its jobs execute
            unused = shutil.ignore_patterns("__pycache__", ".*")  # an editor's lock is a link that leads nowhere
            shutil.copytree(IMPORTED_FROM / "vitinit", folder / "code/vitinit", ignore=unused)
            (folder / RUNS).write_text(json.dumps([cell.run_id for cell in todo.cells]))
            job_ids = submit(work_in_job, todo, number, profile, folder, name)
    except KeyboardInterrupt:
        try:
            slurm_jobs.cancel(slurm_jobs.queued([name]))
        except slurm_jobs.SlurmError as error:
            raise KeyboardInterrupt(
                f"stopped; jobs may be left, vitinit slurm cancel {setting.study}{results_option(setting.root)} "
                f"ends them: {error}"
            ) from None
        raise
    except slurm_jobs.SlurmError:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    several = f"s {job_ids[0]} to {job_ids[-1]}" if len(job_ids) > 1 else f" {job_ids[0]}"
    display.say(f"handed to SLURM: job{several}; logs: {folder}")


def follow_jobs(queue: Queue, display: Display, stop: Stop) -> Generator[End, None, None]:
    """Wait for runs that workers elsewhere carry out, until none of these is left. See `work.Executor`."""
    setting, quiet = queue.setting, 0
    left = {cell.run_id for cell in queue.cells}
    try:
        while left and quiet < 2:  # between two states of a job squeue may not show it for a moment
            time.sleep(LOOK_S)
            jobs = jobs_of(setting.study_folder)
            free = {cell.run_id for cell in queue.candidates()}
            for run_id in left & queue.ended:
                left.discard(run_id)
                end = setting.store.outcome(setting.study, run_id)
                assert isinstance(end, End)
                yield end
            at_work = bool(jobs.alive or jobs.silence)
            for run_id in left - free:
                folder = setting.folder(run_id)
                owner = claims.last(folder)
                if owner and not jobs.over(owner):
                    display.event(run_id, claims.progress(folder))
                    at_work = True
            quiet = 0 if at_work else quiet + 1
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            "the jobs go on without this command; "
            f"vitinit slurm cancel {setting.study}{results_option(setting.root)} ends them"
        ) from None
    for run_id in left:
        yield Unfinished(run_id, "stopped", "no job of it is left")


def work_in_job(queue: Queue) -> None:
    """Carry out runs as a job, until none is left.

    Before its time limit, and when it is preempted, the cluster sends a signal: the runs save and stop, and the job
    asks to be started again. Runs that the limit has stopped before the job came a step further have failed: they would
    do so for ever. On a node whose GPU does not compute no run has failed: the job asks to be started again.
    """
    first = int(os.environ.get("SLURM_ARRAY_TASK_ID") or 0) * queue.slots % len(queue.cells)
    queue.cells, queue.began = (*queue.cells[first:], *queue.cells[:first]), time.monotonic()
    stop = Stop()
    with on_signals(stop):
        try:
            _work(queue, stop)
        except KeyboardInterrupt as interrupt:
            stop.request(str(interrupt) or "SIGINT")
        except BrokenDevice as error:
            print(error, flush=True)
            sys.exit(0 if slurm_jobs.requeue_elsewhere() else 1)
        except VitinitError as error:
            print(f"error: {error}", flush=True)
            sys.exit(1)
    if os.environ.get("SLURM_PROCID", "0") != "0":
        return  # rank 0 speaks for the job; to end as failed before it has would end it
    if not stop.reason:
        if queue.declined and any(queue.candidates()):
            print("what is left needs the whole time of a job", flush=True)
            slurm_jobs.persistently(slurm_jobs.requeue_current)
        return
    print(f"stopped by {stop.reason}; what had begun is saved", flush=True)
    at_limit = stop.reason.startswith("SIGUSR2")
    if slurm_jobs.persistently(slurm_jobs.preempted_current) or (at_limit and queue.progressed()):
        if slurm_jobs.persistently(slurm_jobs.requeue_current):
            sys.exit(0)
    elif at_limit:
        job_id = slurm_jobs.current()
        message = f"not a single step could be saved within the time limit of its job {job_id}: ask for more time"
        for cell in queue.stopped():
            record_failure(cell, queue.setting, "OutOfTime", message)
    sys.exit(1)


def _work(queue: Queue, stop: Stop) -> None:
    display = Display(Terminal(160))
    if source_hash() != queue.setting.code["source"]:
        raise VitinitError(f"the code in {ROOT} is not what this job was submitted with")
    if export_ranks() == 1:
        if any(queue.candidates()):
            work(queue, run_locally, display, stop)
        return
    with led(queue.setting) as (executor, shared):
        if executor:
            queue.setting = shared
            work(queue, executor, display, stop)
