"""Launch: carry out what a grid still lacks, here or as jobs of a cluster, and say how that ended.

`vitinit run`, `vitinit.run` and `vitinit rank` call `launch`. Imports torch only where runs are carried out.
"""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from vitinit.benchmark.datasets import load as datasets
from vitinit.benchmark.datasets import registry
from vitinit.benchmark.records.store import Contents, Store
from vitinit.initializers.errors import VitinitError, count
from vitinit.runners.basics import environment
from vitinit.runners.basics.machine import cores, default_device, gpu_slots, several, unseen_gpu
from vitinit.runners.basics.setting import Execution, Setting
from vitinit.runners.basics.stop import Stop
from vitinit.runners.launching import jobs
from vitinit.runners.launching.choose import planned_of
from vitinit.runners.launching.execute import Tally, check_writable, execute
from vitinit.runners.launching.plan import Planned
from vitinit.runners.launching.words import counts, details, on_folders, print_plan
from vitinit.runners.one_run import claims
from vitinit.runners.one_run.outcome import skip
from vitinit.runners.options import LOCAL, LaunchOptions
from vitinit.runners.tracking.registry import checked
from vitinit.slurm import jobs as slurm_jobs
from vitinit.slurm import profiles

if TYPE_CHECKING:
    from vitinit.benchmark.grids.schema import Cell, Grid
    from vitinit.benchmark.spec import DatasetSpec
    from vitinit.runners.launching.execute import Executor
    from vitinit.runners.terminal.display import Display


@dataclass(frozen=True)
class Todo:
    """Runs of a grid, and which of them are to be carried out now."""

    planned: list[Planned]
    contents: Contents
    setting: Setting
    cells: list[Cell]
    others: list[Cell]
    """Runs of other launchers whose ends are waited for: they may come free."""
    failed_before: list[str]
    """The run_ids of those that failed before and are left alone."""


def launch(grid: Grid, options: LaunchOptions, display: Display, argv: list[str] | None = None) -> Tally:
    """Carry out the runs of a grid that have no record yet, each to its record.

    Args:
        grid: the study.
        options: which of its runs, where and how.
        display: told what happens; it prints.
        argv: the command that does the same, for the records. Default: that of this process.

    Raises:
        VitinitError: it is refused, or the results folder cannot be written.
        KeyboardInterrupt: a stop was asked for. Runs in progress have saved where they were; the message says what goes
            on without this process.
    """
    profile, workers, setting = _setting(grid, options, display, argv)
    executor: Executor | None = None
    try:
        with ExitStack() as stack:
            if setting.execution.executor == "inline":
                from vitinit.runners.launching.inline import Inline, follow, led, shared

                world = stack.enter_context(led(setting.execution.device))
                if world.rank:
                    follow(world)
                    return Tally()
                executor, setting = Inline(world), replace(setting, execution=shared(setting.execution, world))
            with _alone(setting) if profile and not options.dry_run else nullcontext():
                todo = _todo(grid, options, display, setting)
                if options.dry_run:
                    print_plan(grid, todo.planned, todo.contents, setting.data_dir)
                    if profile and todo.cells:
                        from vitinit.runners.launching.cluster import shown

                        print(shown(todo.cells, todo.setting, profile, workers))
                    return Tally()
                _announce(grid, todo, display)
                _record_skips(todo)
                Store(setting.root).write_layout(setting.study, grid.layout)
                if profile:
                    from vitinit.runners.launching.cluster import Followed, hand_over

                    executor = Followed()
                    if todo.cells:
                        hand_over(todo.cells, todo.setting, profile, workers, display)
            return _carry_out(todo, executor, workers, display, awaited=options.wait or not profile)
    except KeyboardInterrupt as interrupt:
        here = f"stopped; finished runs are recorded in {setting.root / setting.study}. The same command resumes "
        there = str(interrupt) or "stopped; jobs that were being handed over are cancelled"
        raise KeyboardInterrupt(there if profile else f"{here}the others from their checkpoints.") from None


def _carry_out(todo: Todo, executor: Executor | None, workers: int, display: Display, awaited: bool) -> Tally:
    setting, tally, watched = todo.setting, Tally(), todo.cells + todo.others
    if watched and awaited:
        if not executor:
            from vitinit.runners.launching.local import Local, fork_server

            executor = Local(workers)
            fork_server()  # it imports torch while this process reads the data
        if setting.execution.executor != "slurm":
            from vitinit.runners.launching.preflight import preflight

            preflight(watched, setting)
        tally = execute(watched, setting, executor, display)
        elsewhere = f", {tally.elsewhere} run by another launcher" if tally.elsewhere else ""
        stopped = f", {tally.stopped} stopped (the same command resumes them)" if tally.stopped else ""
        display.say(f"{count(tally.finished, 'run')} finished, {tally.failed} failed{stopped}{elsewhere}")
    tally.failures += todo.failed_before
    results = "" if setting.root == LOCAL.absolute() else f" --results {shlex.quote(str(setting.root))}"
    if not watched:
        display.say(f"nothing to do: {counts(todo.planned)}")
        if todo.contents.done:
            display.say(f"next: python -m vitinit.analysis.tables --study {setting.study}{results}", whole=True)
    if tally.failures:
        display.say(f"see: vitinit show {tally.failures[0]}{results}: the traceback", whole=True)
    return tally


def _setting(
    grid: Grid, options: LaunchOptions, display: Display, argv: list[str] | None
) -> tuple[profiles.Profile | None, int, Setting]:
    """Return the request of each job, where there are any; how many runs are carried out at once; where and how.

    Raises:
        VitinitError: it is not there, or the options do not go together.
    """
    executor = options.executor
    if several() and executor != "inline":
        raise VitinitError(f"--executor {executor}: under torchrun (WORLD_SIZE is set) it must be inline")
    if executor == "auto":
        reachable = shutil.which("sbatch") and slurm_jobs.current() is None  # in a job, runs are carried out there
        executor = "slurm" if reachable and slurm_jobs.available() else "local"
        if reachable and executor == "local":
            display.say("there is an sbatch, but no cluster answers: carrying the runs out here", "yellow")
    if options.profile and executor != "slurm":  # a profile of the environment is for when there is a cluster
        raise VitinitError(
            f"--profile is for the executor slurm, and the runs would be carried out by {executor}: --executor slurm"
        )
    if executor == "inline" and (options.workers or 1) > 1:
        raise VitinitError(f"--workers {options.workers}: the executor inline carries out one run at a time")
    job = profiles.load(options.profile or os.environ.get("VITINIT_PROFILE") or None) if executor == "slurm" else None
    device = resolve_device(options.device, job)
    compiled = options.compiled and (device == "cuda" or options.device == "cpu")
    if options.compiled and not compiled:
        display.say("--compile is for a GPU and is off here; --compile --device cpu compiles for the CPU", "yellow")
    gpus, tasks, cpus = 0, job.tasks if job else 1, job.cpus if job else cores()
    if device == "cuda":
        gpus = job.gpus if job else len(gpu_slots())
    if git := environment.code().get("git"):
        display.say(f"records will not tell the commit of {environment.ROOT}, nor if it was changed: {git}", "yellow")
    # one run a core, where small models train fastest, or one a GPU; one of several processes has its job to itself
    workers = options.workers or (1 if tasks > 1 or executor == "inline" else gpus or cpus)
    if device == "cuda" and executor == "local" and not options.workers:
        from vitinit.runners.basics.gpu import runs_at_once
        from vitinit.runners.loaders.choice import device_memory

        room = options.micro_batch, device_memory(device), cpus // gpus
        at_once = min((runs_at_once(cell.spec, *room) for cell in grid.cells), default=1)
        display.say(f"{count(at_once, 'run')} at once on each GPU; --workers N changes it")
        workers = gpus * at_once
    if tasks > 1 and workers > 1:
        raise VitinitError(f"--workers {workers}: the {tasks} processes of a job carry out one run at a time")
    return (
        job,
        workers,
        Setting(
            root=options.results.absolute(),
            study=grid.name,
            data_dir=datasets.data_dir(options.data_dir).absolute(),
            execution=Execution(
                device=device,
                threads=max(1, cpus // workers),
                executor=executor,
                deterministic=options.deterministic,
                micro_batch=options.micro_batch,
                compiled=compiled,
                loader=options.loader,
            ),
            code={**environment.code(), "argv": argv or environment.argv()},
            grace_s=max(Setting.grace_s, job.signal_seconds - 30 if job else 0),
            checkpoint_minutes=options.checkpoint_minutes,
            keep_weights=options.keep_weights,
            probes=options.probes,
            keep_maps=options.keep_maps,
            track=checked(options.track or ()),
            sharing=-(-workers // max(1, gpus)),
        ),
    )


def resolve_device(device: str, profile: profiles.Profile | None) -> str:
    """Return the device that `--device` means, here or in the jobs of a profile.

    Raises:
        VitinitError: it is not there, or torch does not see it.
    """
    if profile:
        if device == "cuda" and not profile.gpus:
            raise VitinitError(f"--device cuda: profile {profile.name!r} asks for no GPU; set gpus in it")
        return ("cuda" if profile.gpus else "cpu") if device == "auto" else device
    if device == "cpu" or default_device() == "cuda":
        return "cpu" if device == "cpu" else "cuda"
    if why := unseen_gpu() or "torch finds no CUDA GPU here" * (device == "cuda"):
        raise VitinitError(f"--device {device}: {why}; --device cpu trains on the CPU")
    return "cpu"


@contextmanager
def _alone(setting: Setting) -> Iterator[None]:
    """Keep other launchers from planning and handing out the same study at once."""
    check_writable(setting.root / setting.study)
    try:
        with claims.held(jobs.folder(setting.root, setting.study) / "submitting", Stop()) as lock:
            try:
                yield
            finally:
                lock.finish()
    except claims.Taken as taken:
        raise VitinitError(f"another launcher is handing out this study: {taken}") from None


def _fetched(dataset: DatasetSpec, setting: Setting, display: Display) -> str | None:
    """Return the reason why a dataset cannot be used, after trying to download it."""
    if registry.unavailable(dataset, setting.data_dir) and registry.get(dataset.name).downloaded:
        display.say(f"downloading {dataset.name} to {setting.data_dir}")
        try:
            datasets.download(dataset.name, setting.data_dir)
        except VitinitError as error:
            display.say(str(error), "yellow")
    return registry.unavailable(dataset, setting.data_dir)


def _todo(grid: Grid, options: LaunchOptions, display: Display, setting: Setting) -> Todo:
    """Plan the runs. But for a dry run, missing data are fetched first, and what has become of jobs is recorded."""
    fetch = None if options.dry_run else partial(_fetched, setting=setting, display=display)
    planned, contents = planned_of(grid, Store(options.results), options.only, options.data_dir, missing=fetch)
    if contents.unreadable:
        raise VitinitError(
            f"{contents.unreadable[0]}. It may be a record: chmod -R a+rX by its owner, or another --results"
        )
    slurm = setting.execution.executor == "slurm"
    if slurm and not options.dry_run:
        from vitinit.runners.launching.cluster import settle

        planned = list(settle(planned, contents, setting))
    wanted = ("to do", "failed") if options.retry_failed else ("to do",)
    cells = [item.cell for item in planned if item.state in wanted]
    left_alone = [p.cell.run_id for p in planned if p.state == "failed" and p.state not in wanted]
    live = [item.cell for item in planned if item.state == "live" or (slurm and item.state == "queued")]
    if slurm:
        live = live if options.wait else []
    else:
        live = [cell for cell in live if registry.unavailable(cell.spec.dataset, setting.data_dir) is None]
    if options.retry_failed:
        setting = replace(setting, retried={run_id: failed.written for run_id, failed in contents.failed.items()})
    return Todo(planned, contents, setting, cells, live, left_alone)


def _record_skips(todo: Todo) -> None:
    """Record which runs are skipped, and no longer those that are not."""
    setting, store = todo.setting, Store(todo.setting.root)
    for item in todo.planned:
        if item.state == "skip":
            store.write(skip(item.cell, setting.study, item.reason))
        else:
            store.remove(setting.study, item.cell.run_id, "skipped")


def _announce(grid: Grid, todo: Todo, display: Display) -> None:
    """Say what there is to do, and what needs a sentence."""
    display.say(grid.title)
    display.say(f"{counts(todo.planned)}; records in {todo.setting.root / grid.name}")
    planned, contents = todo.planned, todo.contents
    for line in (*details(planned, contents), *on_folders(planned, contents, todo.setting.data_dir)):
        display.say(line, "yellow")
    if todo.failed_before:
        display.say(f"{count(len(todo.failed_before), 'run')} failed before; --retry-failed runs them again")
