"""Launch: carry out what a grid still lacks, here or as jobs of a cluster, and say how that ended.

`vitinit run`, `vitinit.run` and `vitinit rank` call `launch`. Imports torch only where runs are carried out.
"""

from __future__ import annotations

import shlex
import shutil
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from vitinit.benchmark.datasets import load as datasets
from vitinit.benchmark.datasets import registry
from vitinit.benchmark.records.store import Contents, Layout, Store
from vitinit.benchmark.terminal import duration
from vitinit.initializers.errors import VitinitError, count
from vitinit.runners.basics.machine import cores, default_device, gpu_slots, lacks_compiler, several, unseen_gpu
from vitinit.runners.basics.setting import Execution, Setting
from vitinit.runners.launching import jobs
from vitinit.runners.launching.choose import limited, planned_of
from vitinit.runners.launching.execute import Tally, check_writable, execute
from vitinit.runners.launching.plan import Planned, State, labels
from vitinit.runners.launching.words import SHOWN, left_out, not_records, print_plan, recorded_otherwise
from vitinit.runners.options import LOCAL, REFERENCE, LaunchOptions
from vitinit.slurm import jobs as slurm_jobs
from vitinit.slurm import profiles

if TYPE_CHECKING:
    from vitinit.benchmark.grids.schema import Cell, Grid
    from vitinit.benchmark.spec import DatasetSpec
    from vitinit.runners.launching.execute import Executor
    from vitinit.runners.one_run.claims import Claim
    from vitinit.runners.terminal.display import Display

Where = Literal["inline", "local", "slurm"]


@dataclass(frozen=True)
class Place:
    """Where runs are carried out, as the options say or as it is found."""

    executor: Where
    profile: profiles.Profile | None
    """Of the jobs; None where there are none."""
    device: str
    gpus: int
    """Devices that runs here, or in a job, are shared out to: GPUs, or 1."""
    workers: int
    """Runs at once, here or in a job."""


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
    from vitinit.runners.tracking import registry as trackers

    if options.maps_at and not options.keep_maps:
        raise VitinitError("--maps-at names more epochs for --keep-maps, which is not given")
    track = trackers.checked(options.track or [])
    place = find_place(options, display)
    with ExitStack() as stack:
        executor: Executor | None = None
        execution = _execution(place, options)
        if place.executor == "inline":
            from vitinit.runners.launching.inline import Inline, follow, led, shared

            world = stack.enter_context(led(place.device))
            if world.rank:
                follow(world)
                return Tally()
            executor, execution = Inline(world), shared(execution, world)
        lock = _submitting(stack, options.results, grid.name) if place.profile and not options.dry_run else None
        todo = _todo(grid, options, display, _setting(grid, options, place, execution, track, argv), lock is not None)
        if options.dry_run:
            _show(todo, place)
            return Tally()
        return _carry_out(todo, place, executor, lock)


def _carry_out(todo: Todo, place: Place, executor: Executor | None, lock: Claim | None) -> Tally:
    from vitinit.runners.launching.tidying import begin_anew, record_skips, tidy

    setting, work = todo.setting, None
    store = Store(setting.root)
    record_skips(todo.planned, store, setting.study)
    tidy(setting.root, setting.study, {item.cell.run_id for item in todo.planned if item.state == "done"})
    todo.announce()
    watched = todo.watched()
    try:
        if place.profile and lock:
            executor = _cluster(todo, place.profile, place.workers, lock)
        else:
            if not executor:
                from vitinit.runners.launching.local import Local, fork_server

                executor = Local(place.workers)
                if watched:
                    fork_server()  # it imports torch while this process reads the data
            work = _work(watched, setting)
        begin_anew(todo.anew, store, setting.study)
        todo.display.bar(todo.options.wait or not place.profile)
        tally = execute(watched, setting, executor, todo.display, work, todo.layout)
    except KeyboardInterrupt as interrupt:
        here = f"stopped; finished runs are recorded in {setting.root / setting.study}. The same command goes on with "
        there = str(interrupt) or "stopped; jobs that were being handed over are cancelled"
        said = there if place.profile else f"{here}the others from where they have saved."
        raise KeyboardInterrupt(said) from None
    todo.report(tally, watched)
    tally.failed_before = [item.cell.run_id for item in todo.failed_before]
    return tally


def find_place(options: LaunchOptions, display: Display) -> Place:
    """Return where the runs are carried out.

    Raises:
        VitinitError: it is not there, or the options do not go together.
    """
    executor, why_here = _executor(options.executor, display)
    for option in ("profile", "runs_per_job") if executor != "slurm" else ():
        if getattr(options, option):  # a profile of the environment is for when there is a cluster
            name = option.replace("_", "-")
            why = f", because {why_here}; --executor slurm asks for it all the same" if why_here else ""
            raise VitinitError(
                f"--{name} is for the executor slurm, and the runs would be carried out by {executor}{why}"
            )
    if executor == "inline" and options.workers and options.workers > 1:
        raise VitinitError(f"--workers {options.workers}: the executor inline carries out one run at a time")
    job = profiles.load(options.profile_name) if executor == "slurm" else None
    device = resolve_device(options.device, job)
    if options.compiled:
        _check_that_it_compiles(device, options.deterministic, job, display)
    each = options.per_gpu
    if each and (executor == "inline" or device != "cuda"):
        how = "the executor inline carries out one run at a time" if executor == "inline" else "the runs are on the CPU"
        raise VitinitError(f"--per-gpu {each}: {how}")
    workers, gpus = options.workers or default_workers(device, job, each or 1), gpus_of(device, job)
    if job and job.tasks > 1 and (workers > 1 or (each or 1) > 1):
        given = f"--workers {workers}" if workers > 1 else f"--per-gpu {each}"
        raise VitinitError(f"{given}: the {job.tasks} processes of a job carry out one run at a time")
    if each and workers > each * gpus:
        raise VitinitError(f"--workers {workers}: {count(gpus, 'GPU')} with --per-gpu {each} take {each * gpus}")
    return Place(executor, job, device, gpus, workers)


def _execution(place: Place, options: LaunchOptions) -> Execution:
    alone, job = place.executor == "inline", place.profile
    return Execution(
        place.device,
        cores() if alone else max(1, (job.cpus if job else cores()) // place.workers),
        place.executor,
        options.deterministic,
        micro_batch=options.micro_batch,
        compiled=options.compiled,
        loader=options.loader,
    )


def _setting(
    grid: Grid,
    options: LaunchOptions,
    place: Place,
    execution: Execution,
    track: tuple[str, ...],
    argv: list[str] | None,
) -> Setting:
    from vitinit.runners.basics import environment

    seconds = place.profile.signal_seconds - 30 if place.profile else 0
    return Setting(
        root=options.results.absolute(),
        study=grid.name,
        data_dir=datasets.data_dir(options.data_dir).absolute(),
        execution=execution,
        code={**environment.code(), "argv": argv or environment.argv()},
        grace_s=max(Setting.grace_s, seconds),
        checkpoint_minutes=options.checkpoint_minutes,
        keep_weights=options.keep_weights,
        probes=options.probes,
        keep_maps=options.keep_maps,
        maps_at=tuple(options.maps_at or ()),
        track=track,
        sharing=1 if place.executor == "inline" else -(-place.workers // place.gpus),
    )


def _todo(grid: Grid, options: LaunchOptions, display: Display, setting: Setting, settling: bool) -> Todo:
    """Plan the runs; data sets that are missing are fetched first. `settling`: what has become of jobs is recorded."""
    from vitinit.runners.launching.tidying import forced

    fetch = _Fetch(setting.data_dir, display) if options.download and not options.dry_run else None
    planned, contents = planned_of(grid, Store(options.results), options.only, options.data_dir, missing=fetch)
    if contents.unreadable:
        more = f" (and {len(contents.unreadable) - 1} more)" if len(contents.unreadable) > 1 else ""
        raise VitinitError(
            f"{contents.unreadable[0]}{more}. It may be a record: chmod -R a+rX by its owner, or another --results"
        )
    last = max((item.cell.spec.recipe.epochs for item in planned), default=0)
    if options.maps_at and max(options.maps_at) > last:
        raise VitinitError(f"--maps-at {max(options.maps_at)}: the last epoch of these runs is {last}")
    if settling:
        planned = _settled(planned, contents, setting)
    if options.retry_failed:
        setting = replace(setting, retried={run_id: failed.written for run_id, failed in contents.failed.items()})
    anew = forced(options.force or [], [item.cell for item in planned], setting.data_dir)
    first = {cell.run_id for cell in anew.values()}
    wanted: tuple[State, ...] = ("to do", "failed") if options.retry_failed else ("to do",)
    planned = limited(_to_begin_anew(planned, first), options.limit, wanted, first)
    return Todo(grid, options, display, setting, planned, contents, wanted, anew)


def _show(todo: Todo, place: Place) -> None:
    """Print what would be done."""
    for cell in todo.anew.values():
        todo.display.say(f"--force: {cell.run_id} would begin anew, {cell.describe()}")
    packs = _shared_out(todo, place.profile, place.workers) if place.profile else []
    print_plan(todo.grid, todo.planned, todo.contents, todo.display.console)
    if place.profile and packs:
        _print_script(todo, place.profile, len(packs))


def _cluster(todo: Todo, profile: profiles.Profile, workers: int, lock: Claim) -> Executor:
    from vitinit.runners.launching import snapshot
    from vitinit.runners.launching.cluster import Cluster

    packs = _shared_out(todo, profile, workers)
    if packs and todo.setting.code["dirty"]:
        todo.display.say("the checkout has uncommitted changes: they are recorded, and jobs run them", "yellow")
    copy = snapshot.take(jobs.folder(todo.setting.root, todo.setting.study) / "code") if packs else Path()
    return Cluster(packs, profile, workers, copy, lock, todo.options.wait)


@dataclass(frozen=True)
class Todo:
    """Runs of a grid, and what is to become of them."""

    grid: Grid
    options: LaunchOptions
    display: Display
    setting: Setting
    planned: list[Planned]
    contents: Contents
    wanted: tuple[State, ...]
    """The states of runs that are carried out."""
    anew: dict[str, Cell]
    """Runs that begin anew, by the prefix of `--force`."""

    @property
    def cells(self) -> list[Cell]:
        """Runs to be carried out now."""
        return [item.cell for item in self.planned if item.state in self.wanted]

    @property
    def failed_before(self) -> list[Planned]:
        """Runs that failed before and are left alone."""
        return [item for item in self.planned if item.state == "failed" and item.state not in self.wanted]

    def watched(self) -> list[Cell]:
        """Return the runs whose ends are waited for: also those of other launchers, which may come free."""
        if self.setting.execution.executor == "slurm":
            others = [item.cell for item in self.planned if self.options.wait and item.state in ("live", "queued")]
        else:
            live = [item.cell for item in self.planned if item.state == "live"]
            others = [cell for cell in live if registry.unavailable(cell.spec.dataset, self.setting.data_dir) is None]
        return self.cells + others

    @property
    def layout(self) -> Layout:
        """The grid's layout, with the labels under which its runs are recorded."""
        recorded, layout = labels(self.planned, self.contents), self.grid.layout
        rows = [recorded.get(row, row) for row in layout.rows]
        contrasts = [(recorded.get(ours, ours), recorded.get(theirs, theirs)) for ours, theirs in layout.contrasts]
        return layout.model_copy(update={"rows": list(dict.fromkeys(rows)), "contrasts": contrasts})

    @property
    def results_option(self) -> str:
        """The option that another command needs to find these records."""
        root = self.setting.root
        return "" if root == LOCAL.absolute() else f" --results {shlex.quote(str(root))}"

    def announce(self) -> None:
        """Say what is left out, what is skipped and what is recorded already."""
        for line in not_records(self.planned, self.contents):
            self.display.say(line, "yellow")
        for line in dict.fromkeys(f"skipping {p.skipped}: {p.reason}" for p in self.planned if p.state == "skip"):
            self.display.say(line, "yellow")
        for line in left_out(self.planned):
            self.display.say(line, "yellow")
        if silent := [item for item in self.planned if item.silent]:
            folder = jobs.folder(self.setting.root, self.setting.study)
            self.display.say(
                f"{count(len(silent), 'run')} left to a cluster that does not answer ({silent[0].reason}). "
                f"If it is gone for good: remove {folder}, or --force RUN_ID",
                "yellow",
            )
        done = sum(item.state == "done" for item in self.planned)
        where = self.setting.root / self.grid.name
        self.display.say(self.grid.title)
        self.display.say(f"{count(len(self.planned), 'run')}, {done} recorded already in {where}")
        for line in recorded_otherwise(self.planned, self.contents):
            self.display.say(line, "yellow")
        if self.failed_before:
            self.display.say(
                f"{count(len(self.failed_before), 'run')} failed before and left alone; to run again: --retry-failed"
            )

    def report(self, tally: Tally, cells: list[Cell]) -> None:
        """Say how the runs ended, or that they were handed over."""
        waited = self.options.wait or self.setting.execution.executor != "slurm"
        states = Counter(item.state for item in self.planned)
        before = self.failed_before
        if not cells:
            self._say_nothing_to_do(states)
        elif waited:
            elsewhere = f", {tally.elsewhere} run by another launcher" if tally.elsewhere else ""
            stopped = f", {tally.stopped} stopped (the same command goes on with them)" if tally.stopped else ""
            where = self.setting.root / self.setting.study
            self.display.say(
                f"{count(tally.finished, 'run')} finished, {tally.failed} failed{stopped}{elsewhere}; "
                f"records in {where}"
            )
            if states["queued"] and self.setting.execution.executor != "slurm":
                self.display.say(f"{count(states['queued'], 'run')} left to jobs of the cluster")
        elif states["queued"] or states["live"]:
            self.display.say(f"{count(states['queued'], 'run')} in jobs already, {states['live']} being carried out")
        if failures := [*tally.failures, *(item.cell.run_id for item in before)]:
            for item in before[:SHOWN]:
                self.display.say(f"failed {item.cell.run_id}, {item.cell.describe()}: {item.reason}", whole=True)
            if before[SHOWN:]:
                self.display.say(f"and {len(before) - SHOWN:,} more")
            self.display.say(f"see: vitinit show {failures[0]}{self.results_option}: the traceback", whole=True)

    def _say_nothing_to_do(self, states: Counter[State]) -> None:
        """Say what has become of the runs where none is to be carried out, and how to see those recorded."""
        words: dict[State, str] = {
            "done": "recorded",
            "live": "being carried out",
            "skip": "skipped",
            "queued": "in jobs",
            "failed": "failed",
        }
        found = [f"{states[state]} {text}" for state, text in words.items() if states[state]]
        every = "all " if len(self.planned) > 1 and len(found) == 1 else ""
        self.display.say(f"nothing to do: {every}{', '.join(found)}")
        if states["done"]:
            command = f"python -m vitinit.analysis.tables --study {self.setting.study}{self.results_option}"
            self.display.say(f"next: {command}", whole=True)


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


def _to_begin_anew(planned: list[Planned], anew: set[str]) -> list[Planned]:
    """Return the same runs, those that are forced as if they had no record; what waits in a job begins anew there.

    Of a job of which the cluster says nothing the user knows more than we: a run of it that is forced begins here.
    """
    return [
        replace(item, state="to do", reason="", silent=False)
        if item.cell.run_id in anew and (item.state != "queued" or item.silent)
        else item
        for item in planned
    ]


def _submitting(stack: ExitStack, results: Path, study: str) -> Claim:
    """Keep other launchers from planning and handing out the same study at once."""
    from vitinit.runners.basics.stop import Stop
    from vitinit.runners.one_run import claims

    check_writable(results.absolute() / study)
    try:
        lock = stack.enter_context(claims.held(jobs.folder(results.absolute(), study) / "submitting", Stop()))
    except claims.Taken as taken:
        raise VitinitError(f"another launcher is handing out this study: {taken}") from None
    stack.callback(lock.finish)
    return lock


def _settled(planned: list[Planned], contents: Contents, setting: Setting) -> list[Planned]:
    """Record the failures of jobs that are gone, and return the runs with them."""
    from vitinit.runners.launching.cluster import settle

    failed = settle([item.cell for item in planned if item.state == "to do"], setting)
    contents.failed |= failed
    return [
        replace(item, state="failed", reason=f"{found.error}: {found.message}")
        if (found := failed.get(item.cell.run_id))
        else item
        for item in planned
    ]


def _work(cells: list[Cell], setting: Setting) -> dict[str, float]:
    """Return how long runs take, in any unit; what would stop all of them is found on the way."""
    if not cells:
        return {}
    from vitinit.runners.launching.estimate import estimated_work
    from vitinit.runners.launching.preflight import preflight

    images = preflight(cells, setting)
    return {cell.run_id: estimated_work(cell.spec, images[cell.spec.dataset]) for cell in cells}


def _shared_out(todo: Todo, profile: profiles.Profile, workers: int) -> list[list[Cell]]:
    """Return the runs of each job; prints how many, and how long they take where that has been measured."""
    from vitinit.runners.launching import cluster
    from vitinit.runners.launching.estimate import estimate

    cells = todo.cells
    if not cells:
        return []
    work = _work(cells, todo.setting)
    folders = [Store(root).root / study for root in (todo.setting.root, REFERENCE) for study in Store(root).folders()]
    seconds, machine = estimate(cells, folders, todo.setting.execution.device)
    if len(seconds) == len(cells):
        work = seconds
    size = todo.options.runs_per_job or cluster.runs_per_job(seconds, len(cells), profile, workers)
    packs = cluster.packed(cells, work, -(-len(cells) // size))
    todo.display.say(_estimated(profile, packs, seconds, machine, workers))
    return packs


def _estimated(
    profile: profiles.Profile,
    packs: list[list[Cell]],
    seconds: dict[str, float],
    machine: str,
    workers: int,
) -> str:
    """Return one line: runs, jobs, hours."""
    runs = sum(map(len, packs))
    longest = max(map(len, packs))
    text = f"{count(runs, 'run')} in {count(len(packs), 'job')}"
    text += f" of {'up to ' if longest > 1 else ''}{longest}{f', {workers} at once' if workers > 1 else ''}"
    text += f"; profile {profile.name}: {jobs.summary(profile)}"
    if not seconds:
        return f"{text}; how long they take is not known: no run of this kind has been recorded on such a device"
    kind, units = ("GPU", profile.gpus * profile.nodes) if profile.gpus else ("CPU", profile.cpus * profile.tasks)
    total = sum(seconds.values()) / workers
    longest_job = max(sum(seconds.get(cell.run_id, 0.0) for cell in pack) for pack in packs) / workers
    text += f"; about {total / 3600 * units:.2f} {kind}-hours, the longest job {duration(longest_job)}"
    text += f" (measured on {machine})"
    if len(seconds) < runs:
        text += f"; without {count(runs - len(seconds), 'run')} of a kind that has not been recorded yet"
    return text


def _print_script(todo: Todo, profile: profiles.Profile, count: int) -> None:
    """Print the script of the first array of jobs."""
    from vitinit.slurm.submit import max_array_size, script, split

    folder = jobs.folder(todo.setting.root, todo.setting.study)
    arrays = split(count, profile.parallel, max_array_size() if slurm_jobs.available() else count)
    if len(arrays) > 1:
        sizes = ", ".join(str(array.size) for array in arrays)
        todo.display.say(f"{len(arrays)} arrays of {sizes} jobs, as the cluster takes no larger ones; the first:")
    its_share = profile.model_copy(update={"parallel": arrays[0].parallel})
    print(script(its_share, arrays[0].size, folder / "TIME", todo.setting.study, folder / "code" / "HASH"))


def _executor(asked: Literal["auto", "inline", "local", "slurm"], display: Display) -> tuple[Where, str]:
    """Return where the runs are carried out, and why not on the cluster where nobody has said so.

    Raises:
        VitinitError: this is one of several processes, and the executor is not for them.
    """
    if several() and asked != "inline":
        raise VitinitError(f"--executor {asked}: under torchrun (WORLD_SIZE is set) it must be inline")
    if asked != "auto":
        return asked, ""
    if slurm_jobs.current() is not None:
        return "local", "this is a job of it"
    if shutil.which("sbatch") is None:
        return "local", "there is no sbatch here"
    if slurm_jobs.available():
        return "slurm", ""
    display.say("there is an sbatch, but no cluster answers: carrying the runs out here", "yellow")
    return "local", "no cluster answers here"


def _check_that_it_compiles(
    device: str, deterministic: bool, profile: profiles.Profile | None, display: Display
) -> None:
    """Refuse what torch.compile cannot do; a node may have a compiler that is not here, or that a profile loads."""
    if deterministic and device == "cuda":
        raise VitinitError("--compile: what it measures decides which kernels it makes, so it is never --deterministic")
    lacking = lacks_compiler(device)
    if lacking and not profile:
        raise VitinitError(f"--compile: {lacking}")
    if lacking and profile and not profile.setup:
        display.say(f"--compile: {lacking}; where the jobs run it must be", "yellow", whole=True)


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


def default_workers(device: str, profile: profiles.Profile | None, per_gpu: int = 1) -> int:
    """Return the number of runs at once; a run of several processes has its job to itself.

    One a core, where small models train fastest, or `per_gpu` on each GPU.
    """
    if profile and profile.tasks > 1:
        return 1
    if device != "cpu":
        return per_gpu * gpus_of(device, profile)
    return profile.cpus if profile else cores()


def gpus_of(device: str, profile: profiles.Profile | None) -> int:
    """Return the number of devices that runs here, or in a job, are shared out to: GPUs, or 1."""
    if device != "cuda":
        return 1
    return max(1, profile.gpus if profile else len(gpu_slots()))
