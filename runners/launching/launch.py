"""Launch: carry out what a grid still lacks, here or as jobs of a cluster, and say how that ended.

`vitinit run`, `vitinit.run` and `vitinit rank` call `launch`. Imports torch only where runs are carried out.
"""

from __future__ import annotations

import os
import shlex
import shutil
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from vitinit.benchmark.datasets import load as datasets
from vitinit.benchmark.datasets import registry
from vitinit.benchmark.records.store import Contents, Layout, Store
from vitinit.initializers.errors import VitinitError, count
from vitinit.runners.basics import environment
from vitinit.runners.basics.machine import cores, default_device, gpu_slots, lacks_compiler, several, unseen_gpu
from vitinit.runners.basics.setting import Execution, Setting
from vitinit.runners.launching import jobs
from vitinit.runners.launching.choose import planned_of
from vitinit.runners.launching.execute import Tally, check_writable, execute
from vitinit.runners.launching.plan import Planned, State, labels
from vitinit.runners.launching.words import counts, details, left_out, print_plan
from vitinit.runners.options import LOCAL, LaunchOptions
from vitinit.runners.tracking import registry as trackers
from vitinit.slurm import jobs as slurm_jobs
from vitinit.slurm import profiles

if TYPE_CHECKING:
    from vitinit.benchmark.grids.schema import Cell, Grid
    from vitinit.benchmark.spec import DatasetSpec
    from vitinit.runners.launching.execute import Executor
    from vitinit.runners.one_run.claims import Claim
    from vitinit.runners.terminal.display import Display


@dataclass(frozen=True)
class Place:
    """Executor, device and profile of the runs, as the options say, or as they are found on this machine."""

    executor: Literal["inline", "local", "slurm"]
    profile: profiles.Profile | None
    """Resource request of each job; None where there are no jobs."""
    device: str
    gpus: int
    """Devices that runs here, or in a job, are shared out to: GPUs, or 1."""
    workers: int
    """Runs at once, here or in a job."""


@dataclass(frozen=True)
class Todo:
    """Runs of a grid, and what is to become of them."""

    planned: list[Planned]
    contents: Contents
    setting: Setting
    wanted: tuple[State, ...]
    """The states of runs that are carried out."""
    forced: list[Cell]
    """Runs that begin anew."""

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

    def layout(self, grid: Grid) -> Layout:
        """The grid's layout, with the labels under which its runs are recorded."""
        recorded, layout = labels(self.planned, self.contents), grid.layout
        rows = [recorded.get(row, row) for row in layout.rows]
        contrasts = [(recorded.get(ours, ours), recorded.get(theirs, theirs)) for ours, theirs in layout.contrasts]
        return layout.model_copy(update={"rows": list(dict.fromkeys(rows)), "contrasts": contrasts})


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
        todo = _todo(grid, options, display, setting, settling=lock is not None)
        if options.dry_run:
            _show(grid, todo, place)
            return Tally()
        _announce(grid, todo, display)
        try:
            return _carry_out(grid, options, place, todo, display, executor, lock)
        except KeyboardInterrupt as interrupt:
            here = f"stopped; finished runs are recorded in {setting.root / setting.study}. The same command resumes "
            there = str(interrupt) or "stopped; jobs that were being handed over are cancelled"
            said = there if place.profile else f"{here}the others from their checkpoints."
            raise KeyboardInterrupt(said) from None


def _carry_out(
    grid: Grid,
    options: LaunchOptions,
    place: Place,
    todo: Todo,
    display: Display,
    executor: Executor | None,
    lock: Claim | None,
) -> Tally:
    from vitinit.runners.launching.tidying import begin_anew, record_skips, tidy

    setting, store, watched = todo.setting, Store(todo.setting.root), todo.watched(options.wait)
    record_skips(todo.planned, store, setting.study)
    tidy(setting.root, setting.study, {item.cell.run_id for item in todo.planned if item.state == "done"})
    if not executor and not place.profile:
        from vitinit.runners.launching.local import Local, fork_server

        executor = Local(place.workers)
        if watched:
            fork_server()  # it imports torch while this process reads the data
    work = _work(watched, setting) if not place.profile else None
    if place.profile and lock:
        from vitinit.runners.launching.cluster import Cluster, share_out

        packs: list[list[Cell]] = []
        if todo.cells:
            packs, said = share_out(todo.cells, _work(todo.cells, setting), setting, place.profile, place.workers)
            display.say(said)
            if setting.code["dirty"]:
                display.say("the checkout has uncommitted changes: they are recorded, and jobs run them", "yellow")
        executor = Cluster(place.profile, place.workers, packs, lock, options.wait)
    assert executor
    begin_anew(todo.forced, store, setting.study)
    display.bar(options.wait or not place.profile)
    check_writable(setting.root / setting.study)
    store.write_layout(setting.study, todo.layout(grid))
    tally = execute(watched, setting, executor, display, work)
    tally.failed_before = todo.failed_before
    _report(todo, tally, display, ended=bool(watched) and (options.wait or not place.profile))
    return tally


def find_place(options: LaunchOptions, display: Display) -> Place:
    """Return where the runs are carried out.

    Raises:
        VitinitError: it is not there, or the options do not go together.
    """
    executor, why_here = options.executor, ""
    if several() and executor != "inline":
        raise VitinitError(f"--executor {executor}: under torchrun (WORLD_SIZE is set) it must be inline")
    if executor == "auto":
        why_here = why_not_the_cluster()
        executor = "local" if why_here else "slurm"
        if shutil.which("sbatch") and "answers" in why_here:
            display.say("there is an sbatch, but no cluster answers: carrying the runs out here", "yellow")
    if options.profile and executor != "slurm":  # a profile of the environment is for when there is a cluster
        why = f", because {why_here}; --executor slurm asks for it all the same" if why_here else ""
        raise VitinitError(f"--profile is for the executor slurm, and the runs would be carried out by {executor}{why}")
    if executor == "inline" and (options.workers or 1) > 1:
        raise VitinitError(f"--workers {options.workers}: the executor inline carries out one run at a time")
    named = options.profile or os.environ.get("VITINIT_PROFILE") or None
    job = profiles.load(named) if executor == "slurm" else None
    device = resolve_device(options.device, job)
    if options.compiled:
        check_that_it_compiles(device, options.deterministic, here=job is None)
    workers = options.workers or default_workers(device, job)
    if job and job.tasks > 1 and workers > 1:
        raise VitinitError(f"--workers {workers}: the {job.tasks} processes of a job carry out one run at a time")
    return Place(executor, job, device, gpus_of(device, job), workers)


def why_not_the_cluster() -> str:
    """Return why jobs cannot be submitted from here, or need not be; empty where they can."""
    if slurm_jobs.current() is not None:
        return "this is a job of it"
    if shutil.which("sbatch") is None:
        return "there is no sbatch here"
    return "" if slurm_jobs.available() else "no cluster answers here"


def check_that_it_compiles(device: str, deterministic: bool, here: bool) -> None:
    """Refuse what torch.compile cannot do; a node may have a compiler that is not here."""
    if deterministic and device == "cuda":
        raise VitinitError("--compile: what it measures decides which kernels it makes, so it is never --deterministic")
    if here and (lacking := lacks_compiler(device)):
        raise VitinitError(f"--compile: {lacking}")


def resolve_device(device: str, profile: profiles.Profile | None) -> str:
    """Return the device that `--device` means, here or in the jobs of a profile.

    Raises:
        VitinitError: it is not there, or torch does not see it.
    """
    if profile:
        if device == "cuda" and not profile.gpus:
            raise VitinitError(f"--device cuda: profile {profile.name!r} asks for no GPU; set gpus in it")
        return ("cuda" if profile.gpus else "cpu") if device == "auto" else device
    found = default_device() if device != "cpu" else device
    unseen = unseen_gpu() if device != found else ""
    if device == "cuda" and found != "cuda":
        raise VitinitError(f"--device cuda: {unseen or 'torch finds no CUDA GPU here'}")
    if device == "auto" and found == "cpu" and unseen:
        raise VitinitError(f"{unseen}; --device cpu trains on the CPU, as does CUDA_VISIBLE_DEVICES= before a command")
    return found


def default_workers(device: str, profile: profiles.Profile | None) -> int:
    """Return the number of runs at once; a run of several processes has its job to itself.

    One a core, where small models train fastest, or one a GPU.
    """
    if profile and profile.tasks > 1:
        return 1
    if device != "cpu":
        return gpus_of(device, profile)
    return profile.cpus if profile else cores()


def gpus_of(device: str, profile: profiles.Profile | None) -> int:
    """Return the number of devices that runs here, or in a job, are shared out to: GPUs, or 1."""
    if device != "cuda":
        return 1
    return max(1, profile.gpus if profile else len(gpu_slots()))


def _setting(grid: Grid, options: LaunchOptions, place: Place, argv: list[str] | None) -> Setting:
    if options.maps_at and not options.keep_maps:
        raise VitinitError("--maps-at names more epochs for --keep-maps, which is not given")
    alone, job = place.executor == "inline", place.profile
    execution = Execution(
        place.device,
        cores() if alone else max(1, (job.cpus if job else cores()) // place.workers),
        place.executor,
        options.deterministic,
        micro_batch=options.micro_batch,
        compiled=options.compiled,
        loader=options.loader,
    )
    return Setting(
        root=options.results.absolute(),
        study=grid.name,
        data_dir=datasets.data_dir(options.data_dir).absolute(),
        execution=execution,
        code={**environment.code(), "argv": argv or environment.argv()},
        grace_s=max(Setting.grace_s, job.signal_seconds - 30 if job else 0),
        checkpoint_minutes=options.checkpoint_minutes,
        keep_weights=options.keep_weights,
        probes=options.probes,
        keep_maps=options.keep_maps,
        maps_at=tuple(options.maps_at or ()),
        track=trackers.checked(options.track or []),
        sharing=1 if alone else -(-place.workers // place.gpus),
    )


def _submitting(stack: ExitStack, setting: Setting) -> Claim:
    """Keep other launchers from planning and handing out the same study at once."""
    from vitinit.runners.basics.stop import Stop
    from vitinit.runners.one_run import claims

    check_writable(setting.root / setting.study)
    try:
        folder = jobs.folder(setting.root, setting.study) / "submitting"
        lock = stack.enter_context(claims.held(folder, Stop()))
    except claims.Taken as taken:
        raise VitinitError(f"another launcher is handing out this study: {taken}") from None
    stack.callback(lock.finish)
    return lock


@dataclass
class _Fetch:
    """Reason why a dataset cannot be used, after trying once to download it."""

    folder: Path
    display: Display
    tried: set[str] = field(default_factory=set)

    def __call__(self, dataset: DatasetSpec) -> str | None:
        reason = registry.unavailable(dataset, self.folder)
        if reason and registry.get(dataset.name).downloaded and dataset.name not in self.tried:
            self.tried.add(dataset.name)
            self.display.say(f"downloading {dataset.name} to {self.folder}")
            try:
                datasets.download(dataset.name, self.folder)
            except VitinitError as error:
                self.display.say(str(error), "yellow")
            reason = registry.unavailable(dataset, self.folder)
        return reason


def _todo(grid: Grid, options: LaunchOptions, display: Display, setting: Setting, settling: bool) -> Todo:
    """Plan the runs; data sets that are missing are fetched first. `settling`: what has become of jobs is recorded."""
    fetch = _Fetch(setting.data_dir, display) if not options.dry_run else None
    planned, contents = planned_of(grid, Store(options.results), options.only, options.data_dir, missing=fetch)
    if contents.unreadable:
        raise VitinitError(
            f"{contents.unreadable[0]}. It may be a record: chmod -R a+rX by its owner, or another --results"
        )
    last = max((item.cell.spec.recipe.epochs for item in planned), default=0)
    if max(setting.maps_at, default=0) > last:
        raise VitinitError(f"--maps-at {max(setting.maps_at)}: the last epoch of these runs is {last}")
    if settling:
        from vitinit.runners.launching.cluster import settle

        contents.failed |= settle([item.cell for item in planned if item.state == "to do"], setting)
        planned = [
            replace(item, state="failed", reason=f"{found.error}: {found.message}")
            if item.state == "to do" and (found := contents.failed.get(item.cell.run_id))
            else item
            for item in planned
        ]
    if options.retry_failed:
        setting = replace(setting, retried={run_id: failed.written for run_id, failed in contents.failed.items()})
    forced = [_named(prefix, planned, setting.data_dir) for prefix in options.force or []]
    # What waits in a job begins anew there; of a job of which the cluster says nothing the user knows more than we.
    planned = [
        replace(item, state="to do", reason="", silent=False)
        if item.cell in forced and (item.state != "queued" or item.silent)
        else item
        for item in planned
    ]
    wanted: tuple[State, ...] = ("to do", "failed") if options.retry_failed else ("to do",)
    return Todo(planned, contents, setting, wanted, forced)


def _named(prefix: str, planned: list[Planned], data_dir: Path) -> Cell:
    """Return the run that `--force` names.

    Raises:
        VitinitError: it names no run or several, or the run cannot be carried out now.
    """
    found = [item.cell for item in planned if item.cell.run_id.startswith(prefix)]
    if len(found) != 1:
        how_many = f"{len(found)} runs of this grid" if found else "no run of this grid, as --seeds and --only leave it"
        raise VitinitError(f"--force {prefix}: {how_many}; see: vitinit plan")
    if reason := found[0].misfit or registry.unavailable(found[0].spec.dataset, data_dir):
        raise VitinitError(f"--force {prefix}: {reason}")
    return found[0]


def _work(cells: list[Cell], setting: Setting) -> dict[str, float]:
    """Return how long runs take, in any unit; what would stop all of them is found on the way."""
    if not cells:
        return {}
    from vitinit.runners.launching.estimate import estimated_work
    from vitinit.runners.launching.preflight import preflight

    images = preflight(cells, setting)
    return {cell.run_id: estimated_work(cell.spec, images[cell.spec.dataset]) for cell in cells}


def _show(grid: Grid, todo: Todo, place: Place) -> None:
    """Print what would be done."""
    print_plan(grid, todo.planned, todo.contents)
    if place.profile and todo.cells:
        from vitinit.runners.launching.cluster import share_out, shown_script

        work = _work(todo.cells, todo.setting)
        packs, said = share_out(todo.cells, work, todo.setting, place.profile, place.workers)
        print(f"{said}\n{shown_script(packs, todo.setting, place.profile)}")


def _announce(grid: Grid, todo: Todo, display: Display) -> None:
    """Say what there is to do, what is left out, and what needs a sentence."""
    display.say(grid.title)
    display.say(f"{counts(todo.planned)}; records in {todo.setting.root / grid.name}")
    for line in [*left_out(todo.planned), *details(todo.planned, todo.contents)]:
        display.say(line, "yellow")
    if any(item.silent for item in todo.planned):
        folder = jobs.folder(todo.setting.root, todo.setting.study)
        display.say(f"if that cluster is gone for good: remove {folder}, or --force RUN_ID", "yellow")
    if todo.failed_before:
        said = f"{count(len(todo.failed_before), 'run')} failed before; --retry-failed runs them again"
        display.say(said)


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
