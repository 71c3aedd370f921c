"""Launch: carry out what a grid still lacks, here or as jobs of a cluster, and say how that ended.

`vitinit run`, `vitinit.run` and `vitinit rank` call `launch`. Imports torch only where runs are carried out.
"""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from vitinit.benchmark.datasets import load as datasets
from vitinit.benchmark.datasets import registry
from vitinit.benchmark.records.record import RunRecord
from vitinit.benchmark.records.store import Contents, Store
from vitinit.initializers.errors import VitinitError, count
from vitinit.runners.basics import environment
from vitinit.runners.basics.machine import cores, default_device, gpu_slots, lacks_compiler, several, unseen_gpu
from vitinit.runners.basics.setting import Execution, Setting
from vitinit.runners.basics.stop import Stop
from vitinit.runners.launching import jobs
from vitinit.runners.launching.choose import planned_of
from vitinit.runners.launching.execute import Tally, check_writable, execute
from vitinit.runners.launching.plan import Planned, State
from vitinit.runners.launching.words import counts, details, print_plan, shared_images
from vitinit.runners.one_run import claims
from vitinit.runners.options import LOCAL, LaunchOptions
from vitinit.runners.tracking import registry as trackers
from vitinit.slurm import jobs as slurm_jobs
from vitinit.slurm import profiles

if TYPE_CHECKING:
    from vitinit.benchmark.grids.schema import Cell, Grid
    from vitinit.benchmark.spec import DatasetSpec
    from vitinit.runners.launching.execute import Executor
    from vitinit.runners.terminal.display import Display


@dataclass(frozen=True)
class Place:
    """Executor, device and profile of the runs, as the options say, or as they are found on this machine."""

    executor: Literal["inline", "local", "slurm"]
    profile: profiles.Profile | None
    """Resource request of each job; None where there are no jobs."""
    device: str
    workers: int
    """Runs at once, here or in a job."""
    sharing: int
    """Number of them that share a GPU, or the CPU."""


@dataclass(frozen=True)
class Todo:
    """Runs of a grid, and what is to become of them."""

    planned: list[Planned]
    contents: Contents
    setting: Setting
    wanted: tuple[State, ...]
    """The states of runs that are carried out."""

    @property
    def cells(self) -> list[Cell]:
        """Runs to be carried out now."""
        return [item.cell for item in self.planned if item.state in self.wanted]

    @property
    def failed_before(self) -> list[str]:
        """Runs that failed before and are left alone."""
        return [p.cell.run_id for p in self.planned if p.state == "failed" and p.state not in self.wanted]

    def watched(self, wait: bool) -> list[Cell]:
        """Return the runs whose ends are waited for: also those of other launchers, which may come free."""
        if self.setting.execution.executor == "slurm":
            others = [item.cell for item in self.planned if wait and item.state in ("live", "queued")]
        else:
            live = [item.cell for item in self.planned if item.state == "live"]
            others = [cell for cell in live if registry.unavailable(cell.spec.dataset, self.setting.data_dir) is None]
        return self.cells + others


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
    place = find_place(options, display)
    setting = _setting(grid, options, place, argv)
    try:
        with ExitStack() as stack:
            executor: Executor | None = None
            if place.executor == "inline":
                from vitinit.runners.launching.inline import Inline, follow, led, shared

                world = stack.enter_context(led(place.device))
                if world.rank:
                    follow(world)
                    return Tally()
                executor, setting = Inline(world), replace(setting, execution=shared(setting.execution, world))
            lock = _submitting(stack, setting) if place.profile and not options.dry_run else None
            todo = _todo(grid, options, display, setting)
            if place.profile:
                from vitinit.runners.launching.cluster import Cluster

                executor = cluster = Cluster(place.profile, place.workers, todo.cells, lock, options.wait)
            if options.dry_run:
                print_plan(grid, todo.planned, todo.contents)
                if place.profile and todo.cells:
                    print(cluster.shown(todo.setting))
                return Tally()
            _announce(grid, todo, display)
            return _carry_out(grid, todo, place, display, executor, options.wait)
    except KeyboardInterrupt as interrupt:
        here = f"stopped; finished runs are recorded in {setting.root / setting.study}. The same command resumes "
        there = str(interrupt) or "stopped; jobs that were being handed over are cancelled"
        raise KeyboardInterrupt(there if place.profile else f"{here}the others from their checkpoints.") from None


def _carry_out(grid: Grid, todo: Todo, place: Place, display: Display, executor: Executor | None, wait: bool) -> Tally:
    setting, watched, awaited, work = todo.setting, todo.watched(wait), wait or not place.profile, None
    _tidy(todo)
    if not executor:
        from vitinit.runners.launching.local import Local, fork_server

        executor = Local(place.workers)
        if watched:
            fork_server()  # it imports torch while this process reads the data
    if watched and not place.profile:
        from vitinit.runners.launching.preflight import preflight

        work = preflight(watched, setting)
    display.bar(awaited)
    Store(setting.root).write_layout(setting.study, grid.layout)
    tally = execute(watched, setting, executor, display, work)
    tally.failed_before = todo.failed_before
    _report(todo, tally, display, ended=bool(watched) and awaited)
    return tally


def find_place(options: LaunchOptions, display: Display) -> Place:
    """Return where the runs are carried out.

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
    if options.compiled and options.deterministic and device == "cuda":
        raise VitinitError("--compile: what it measures decides which kernels it makes, so it is never --deterministic")
    if options.compiled and not job and (lacking := lacks_compiler(device)):  # a node may have what is not here
        raise VitinitError(f"--compile: {lacking}")
    gpus, tasks = 0, job.tasks if job else 1
    if device == "cuda":
        gpus = job.gpus if job else len(gpu_slots())
    # one run a core, where small models train fastest, or one a GPU; one of several processes has its job to itself
    workers = options.workers or (1 if tasks > 1 else gpus or (job.cpus if job else cores()))
    if tasks > 1 and workers > 1:
        raise VitinitError(f"--workers {workers}: the {tasks} processes of a job carry out one run at a time")
    return Place(executor, job, device, workers, 1 if executor == "inline" else -(-workers // max(1, gpus)))


def resolve_device(device: str, profile: profiles.Profile | None) -> str:
    """Return the device that `--device` means, here or in the jobs of a profile.

    Raises:
        VitinitError: it is not there, or torch does not see it.
    """
    if profile:
        if device == "cuda" and not profile.gpus:
            raise VitinitError(f"--device cuda: profile {profile.name!r} asks for no GPU; set gpus in it")
        return ("cuda" if profile.gpus else "cpu") if device == "auto" else device
    found = "cpu" if device == "cpu" else default_device()
    why = "torch finds no CUDA GPU here" if device == "cuda" else ""
    if found != device and found == "cpu" and (why := unseen_gpu() or why):
        raise VitinitError(f"--device {device}: {why}; --device cpu trains on the CPU")
    return found


def _setting(grid: Grid, options: LaunchOptions, place: Place, argv: list[str] | None) -> Setting:
    if options.maps_at and not options.keep_maps:
        raise VitinitError("--maps-at names more epochs for --keep-maps, which is not given")
    job = place.profile
    return Setting(
        root=options.results.absolute(),
        study=grid.name,
        data_dir=datasets.data_dir(options.data_dir).absolute(),
        execution=Execution(
            device=place.device,
            threads=max(1, (job.cpus if job else cores()) // (1 if place.executor == "inline" else place.workers)),
            executor=place.executor,
            deterministic=options.deterministic,
            micro_batch=options.micro_batch,
            compiled=options.compiled,
            loader=options.loader,
        ),
        code={**environment.code(), "argv": argv or environment.argv()},
        grace_s=max(Setting.grace_s, job.signal_seconds - 30 if job else 0),
        checkpoint_minutes=options.checkpoint_minutes,
        keep_weights=options.keep_weights,
        probes=options.probes,
        keep_maps=options.keep_maps,
        maps_at=tuple(options.maps_at or ()),
        track=trackers.checked(options.track or []),
        sharing=place.sharing,
    )


def _submitting(stack: ExitStack, setting: Setting) -> claims.Claim:
    """Keep other launchers from planning and handing out the same study at once."""
    check_writable(setting.root / setting.study)
    try:
        folder = jobs.folder(setting.root, setting.study) / "submitting"
        lock = stack.enter_context(claims.held(folder, Stop()))
    except claims.Taken as taken:
        raise VitinitError(f"another launcher is handing out this study: {taken}") from None
    stack.callback(lock.finish)
    return lock


def _fetching(setting: Setting, display: Display) -> Callable[[DatasetSpec], str | None]:
    """Return a function: the reason why a dataset cannot be used, after trying to download it."""

    def missing(dataset: DatasetSpec) -> str | None:
        if registry.unavailable(dataset, setting.data_dir) and registry.get(dataset.name).downloaded:
            display.say(f"downloading {dataset.name} to {setting.data_dir}")
            try:
                datasets.download(dataset.name, setting.data_dir)
            except VitinitError as error:
                display.say(str(error), "yellow")
        return registry.unavailable(dataset, setting.data_dir)

    return missing


def _todo(grid: Grid, options: LaunchOptions, display: Display, setting: Setting) -> Todo:
    """Plan the runs. But for a dry run, missing data are fetched first, and what has become of jobs is recorded."""
    fetch = None if options.dry_run else _fetching(setting, display)
    planned, contents = planned_of(grid, Store(options.results), options.only, options.data_dir, missing=fetch)
    if contents.unreadable:
        raise VitinitError(
            f"{contents.unreadable[0]}. It may be a record: chmod -R a+rX by its owner, or another --results"
        )
    last = max((item.cell.spec.recipe.epochs for item in planned), default=0)
    if max(setting.maps_at, default=0) > last:
        raise VitinitError(f"--maps-at {max(setting.maps_at)}: the last epoch of these runs is {last}")
    if setting.execution.executor == "slurm" and not options.dry_run:
        from vitinit.runners.launching.cluster import settle

        planned = list(settle(planned, contents, setting))
    if options.retry_failed:
        setting = replace(setting, retried={run_id: failed.written for run_id, failed in contents.failed.items()})
    return Todo(planned, contents, setting, ("to do", "failed") if options.retry_failed else ("to do",))


def _tidy(todo: Todo) -> None:
    """Record which runs are skipped, and no longer those that are not; remove what recorded runs have left behind.

    These were killed between their record and their own tidying.
    """
    from vitinit.runners.one_run.outcome import skip

    setting, store = todo.setting, Store(todo.setting.root)
    for item in todo.planned:
        if item.state == "skip":
            store.write(skip(item.cell, setting.study, item.reason))
            continue
        store.remove(setting.study, item.cell.run_id, "skipped")
        folder = claims.folder(setting.root, setting.study, item.cell.run_id)
        if item.state == "done" and folder.exists():
            with suppress(claims.Taken, VitinitError), claims.held(folder, Stop()) as claim:
                if isinstance(store.outcome(setting.study, folder.name), RunRecord):
                    claim.finish()


def _announce(grid: Grid, todo: Todo, display: Display) -> None:
    """Say what there is to do, and what needs a sentence."""
    display.say(grid.title)
    display.say(f"{counts(todo.planned)}; records in {todo.setting.root / grid.name}")
    for line in (*details(todo.planned, todo.contents), *shared_images(todo.planned)):
        display.say(line, "yellow")
    if any(item.silent for item in todo.planned):
        folder = jobs.folder(todo.setting.root, todo.setting.study)
        display.say(f"if that cluster is gone for good: remove {folder}", "yellow")
    if todo.failed_before:
        display.say(f"{count(len(todo.failed_before), 'run')} failed before; --retry-failed runs them again")


def _report(todo: Todo, tally: Tally, display: Display, ended: bool) -> None:
    """Say how the runs ended, where they have, and what to look at next."""
    setting = todo.setting
    results = "" if setting.root == LOCAL.absolute() else f" --results {shlex.quote(str(setting.root))}"
    if ended:
        elsewhere = f", {tally.elsewhere} run by another launcher" if tally.elsewhere else ""
        stopped = f", {tally.stopped} stopped (the same command resumes them)" if tally.stopped else ""
        display.say(f"{count(tally.finished, 'run')} finished, {tally.failed} failed{stopped}{elsewhere}")
    elif not todo.cells:
        display.say(f"nothing to do: {counts(todo.planned)}")
        if todo.contents.done:
            command = f"python -m vitinit.analysis.tables --study {setting.study}{results}"
            display.say(f"next: {command}", whole=True)
    if failures := tally.failures + tally.failed_before:
        display.say(f"see: vitinit show {failures[0]}{results}: the traceback", whole=True)
