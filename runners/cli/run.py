"""`vitinit run`: plan a grid, execute what it still lacks, here or as jobs of a cluster, and say how that ended."""

from __future__ import annotations

import shlex
import shutil
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import typer

from vitinit.benchmark.datasets import load as datasets
from vitinit.benchmark.datasets import registry
from vitinit.benchmark.records.store import Layout, Outline, Store
from vitinit.benchmark.terminal import duration
from vitinit.initializers.errors import VitinitError, count
from vitinit.runners.basics.machine import cores, default_device, gpu_slots, lacks_compiler, several, unseen_gpu
from vitinit.runners.cli import run_options as options
from vitinit.runners.cli.options import (
    LOCAL,
    REFERENCE,
    DataOption,
    GridArgument,
    LimitOption,
    OnlyOption,
    ProfileOption,
    ResultsOption,
    SeedsOption,
    SetOption,
    console,
)
from vitinit.runners.cli.plan import (
    left_out,
    limited,
    load_grid,
    not_records,
    planned_of,
    print_plan,
    recorded_otherwise,
)
from vitinit.runners.launching import jobs
from vitinit.runners.launching.plan import labels
from vitinit.slurm import jobs as slurm_jobs
from vitinit.slurm import profiles

if TYPE_CHECKING:
    from vitinit.benchmark.grids.schema import Cell, Grid
    from vitinit.benchmark.spec import DatasetSpec
    from vitinit.runners.basics.setting import Setting
    from vitinit.runners.launching.execute import Executor, Tally
    from vitinit.runners.launching.plan import Planned, State
    from vitinit.runners.one_run.claims import Claim

Where = Literal["inline", "local", "slurm"]
SHOWN = 8
"""So many runs that failed before are listed."""


def run(
    context: typer.Context,
    grid: GridArgument,
    seeds: SeedsOption = None,
    only: OnlyOption = None,
    limit: LimitOption = None,
    fixed: SetOption = None,
    retry_failed: options.RetryOption = False,
    force: options.ForceOption = None,
    dry_run: options.DryRunOption = False,
    executor: options.ExecutorOption = "auto",
    device: options.DeviceOption = "auto",
    profile: ProfileOption = None,
    runs_per_job: options.RunsPerJobOption = None,
    wait: options.WaitOption = False,
    brief: options.BriefOption = False,
    download: options.DownloadOption = True,
    data_dir: DataOption = None,
    results: ResultsOption = LOCAL,
    workers: options.WorkersOption = None,
    per_gpu: options.PerGpuOption = None,
    micro_batch: options.MicroBatchOption = None,
    loader: options.LoaderOption = "auto",
    compiled: options.CompileOption = False,
    checkpoint_minutes: options.CheckpointMinutesOption = 5.0,
    checkpoint_steps: options.CheckpointStepsOption = None,
    keep_weights: options.KeepWeightsOption = False,
    track: options.TrackOption = None,
    probes: options.ProbesOption = True,
    keep_maps: options.KeepMapsOption = False,
    maps_at: options.MapsAtOption = None,
    deterministic: options.DeterministicOption = False,
) -> None:
    """Run every experiment of a grid that has no record yet. After a stop, the same command resumes.

    Exit code 1: a run has failed or was stopped; 130: Ctrl-C; 2: refused.
    """
    from vitinit.runners.basics.environment import argv, code
    from vitinit.runners.basics.setting import Execution, SaveInterval, Setting
    from vitinit.runners.launching.execute import execute
    from vitinit.runners.launching.tidying import begin_anew, forced, record_skips, tidy
    from vitinit.runners.terminal.display import Display
    from vitinit.runners.tracking import registry as trackers

    if maps_at and not keep_maps:
        raise VitinitError("--maps-at names more epochs for --keep-maps, which is not given")
    tracked = trackers.checked(track or [])
    where, why_here = _executor(executor)
    _refuse_what_is_for_others(context, where, why_here, workers)
    job = profiles.load(profile) if where == "slurm" else None
    chosen_device = resolve_device(device, job)
    if compiled:
        _check_that_it_compiles(chosen_device, deterministic, job)
    if per_gpu and (where == "inline" or chosen_device != "cuda"):
        how = "the executor inline carries out one run at a time" if where == "inline" else "the runs are on the CPU"
        raise VitinitError(f"--per-gpu {per_gpu}: {how}")
    at_once = workers or default_workers(chosen_device, job, per_gpu or 1)
    if job and job.tasks > 1 and (at_once > 1 or (per_gpu or 1) > 1):
        given = f"--workers {at_once}" if at_once > 1 else f"--per-gpu {per_gpu}"
        raise VitinitError(f"{given}: the {job.tasks} processes of a job carry out one run at a time")
    gpus = gpus_of(chosen_device, job)
    if per_gpu and at_once > per_gpu * gpus:
        raise VitinitError(f"--workers {at_once}: {count(gpus, 'GPU')} with --per-gpu {per_gpu} take {per_gpu * gpus}")
    threads = cores() if where == "inline" else max(1, (job.cpus if job else cores()) // at_once)
    execution = Execution(
        chosen_device, threads, where, deterministic, micro_batch=micro_batch, compiled=compiled, loader=loader
    )
    place: Executor | None = None
    work = None
    if where == "inline":
        from vitinit.runners.launching.inline import Inline, follow, led, shared

        world = context.with_resource(led(chosen_device))
        if world.rank:
            follow(world)
            return
        place, execution = Inline(world), shared(execution, world)
    loaded, folder = load_grid(grid, seeds, fixed), datasets.data_dir(data_dir)
    lock = _submitting(context, results, loaded.name) if job and not dry_run else None
    fetch = _Fetch(folder) if download and not dry_run else None
    planned, contents = planned_of(loaded, Store(results), only, data_dir, missing=fetch)
    if contents.unreadable:
        more = f" (and {len(contents.unreadable) - 1} more)" if len(contents.unreadable) > 1 else ""
        raise VitinitError(
            f"{contents.unreadable[0]}{more}. It may be a record: chmod -R a+rX by its owner, or another --results"
        )
    last = max((item.cell.spec.recipe.epochs for item in planned), default=0)
    if maps_at and max(maps_at) > last:
        raise VitinitError(f"--maps-at {max(maps_at)}: the last epoch of these runs is {last}")
    setting = Setting(
        root=results.absolute(),
        study=loaded.name,
        data_dir=folder.absolute(),
        execution=execution,
        code={**code(), "argv": argv()},
        grace_s=max(Setting.grace_s, job.signal_seconds - 30) if job else Setting.grace_s,
        checkpoint=SaveInterval(checkpoint_minutes, checkpoint_steps),
        keep_weights=keep_weights,
        probes=probes,
        keep_maps=keep_maps,
        maps_at=tuple(maps_at or ()),
        track=tracked,
        sharing=1 if where == "inline" else -(-at_once // gpus),
    )
    if lock:
        planned = _settled(planned, contents, setting)
    if retry_failed:
        setting = replace(setting, retried={run_id: failed.written for run_id, failed in contents.failed.items()})
    anew = forced(force or [], [item.cell for item in planned], folder)
    first = {cell.run_id for cell in anew.values()}
    wanted: tuple[State, ...] = ("to do", "failed") if retry_failed else ("to do",)
    planned = limited(_to_begin_anew(planned, first), limit, wanted, first)
    todo = Todo(loaded, setting, planned, contents, wanted)
    if dry_run:
        for cell in anew.values():
            console.print(f"--force: {cell.run_id} would begin anew, {cell.describe()}")
        packs = _shared_out(todo, job, at_once, runs_per_job) if job else []
        print_plan(loaded, todo.planned, contents)
        if job and packs:
            _print_script(todo, job, len(packs))
        return
    record_skips(todo.planned, Store(results), loaded.name)
    tidy(results, loaded.name, {item.cell.run_id for item in todo.planned if item.state == "done"})
    todo.announce()
    watched = todo.watched(wait)
    try:
        if job and lock:
            from vitinit.runners.launching import snapshot
            from vitinit.runners.launching.cluster import Cluster

            packs = _shared_out(todo, job, at_once, runs_per_job)
            if packs and setting.code["dirty"]:
                console.print(
                    "the checkout has uncommitted changes: they are recorded, and jobs run them", style="yellow"
                )
            copy = snapshot.take(jobs.folder(setting.root, setting.study) / "code") if packs else Path()
            place = Cluster(packs, job, at_once, copy, lock, wait)
        else:
            if not place:
                from vitinit.runners.launching.local import Local, fork_server

                place = Local(at_once)
                if watched:
                    fork_server()  # it imports torch while this process reads the data
            work = _work(watched, setting)
        begin_anew(anew, Store(setting.root), setting.study)
        display = Display(console, brief, bar=wait or not job)
        tally = execute(watched, setting, place, display, work, todo.layout)
    except KeyboardInterrupt as interrupt:
        here = f"stopped; finished runs are recorded in {setting.root / setting.study}. The same command goes on with "
        there = str(interrupt) or "stopped; jobs that were being handed over are cancelled"
        console.print(there if job else f"{here}the others from where they have saved.")
        raise typer.Exit(130) from None
    todo.report(tally, watched, waited=wait or not job)


@dataclass(frozen=True)
class Todo:
    """Runs of a grid, and what is to become of them."""

    loaded: Grid
    setting: Setting
    planned: list[Planned]
    contents: Outline
    wanted: tuple[State, ...]
    """The states of runs that are carried out."""

    @property
    def cells(self) -> list[Cell]:
        """Runs to be carried out now."""
        return [item.cell for item in self.planned if item.state in self.wanted]

    @property
    def failed_before(self) -> list[Planned]:
        """Runs that failed before and are left alone."""
        return [item for item in self.planned if item.state == "failed" and item.state not in self.wanted]

    def watched(self, wait: bool) -> list[Cell]:
        """Return the runs whose ends are waited for: also those of other launchers, which may come free."""
        if self.setting.execution.executor == "slurm":
            others = [item.cell for item in self.planned if wait and item.state in ("live", "queued")]
        else:
            live = [item.cell for item in self.planned if item.state == "live"]
            others = [cell for cell in live if registry.unavailable(cell.spec.dataset, self.setting.data_dir) is None]
        return self.cells + others

    @property
    def layout(self) -> Layout:
        """The grid's layout, with the labels under which its runs are recorded."""
        recorded, layout = labels(self.planned, self.contents), self.loaded.layout
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
            console.print(line, style="yellow")
        for line in dict.fromkeys(f"skipping {p.skipped}: {p.reason}" for p in self.planned if p.state == "skip"):
            console.print(line, style="yellow")
        for line in left_out(self.planned):
            console.print(line, style="yellow")
        if silent := [item for item in self.planned if item.silent]:
            folder = jobs.folder(self.setting.root, self.setting.study)
            console.print(
                f"{count(len(silent), 'run')} left to a cluster that does not answer ({silent[0].reason}). "
                f"If it is gone for good: remove {folder}, or --force RUN_ID",
                style="yellow",
            )
        done = sum(item.state == "done" for item in self.planned)
        where = self.setting.root / self.loaded.name
        console.print(self.loaded.title)
        console.print(f"{count(len(self.planned), 'run')}, {done} recorded already in {where}")
        for line in recorded_otherwise(self.planned, self.contents):
            console.print(line, style="yellow")
        if self.failed_before:
            console.print(
                f"{count(len(self.failed_before), 'run')} failed before and left alone; to run again: --retry-failed"
            )

    def report(self, tally: Tally, cells: list[Cell], waited: bool) -> None:
        """Say how the runs ended, or that they were handed over.

        Raises:
            Exit: with 1 when runs failed, now or before, or were stopped.
        """
        states = Counter(item.state for item in self.planned)
        before = self.failed_before
        if not cells:
            self._say_nothing_to_do(states)
        elif waited:
            elsewhere = f", {tally.elsewhere} run by another launcher" if tally.elsewhere else ""
            stopped = f", {tally.stopped} stopped (the same command goes on with them)" if tally.stopped else ""
            where = self.setting.root / self.setting.study
            console.print(
                f"{count(tally.finished, 'run')} finished, {tally.failed} failed{stopped}{elsewhere}; "
                f"records in {where}"
            )
            if states["queued"] and self.setting.execution.executor != "slurm":
                console.print(f"{count(states['queued'], 'run')} left to jobs of the cluster")
        elif states["queued"] or states["live"]:
            console.print(f"{count(states['queued'], 'run')} in jobs already, {states['live']} being carried out")
        if failures := [*tally.failures, *(item.cell.run_id for item in before)]:
            for item in before[:SHOWN]:
                console.print(f"failed {item.cell.run_id}, {item.cell.describe()}: {item.reason}", soft_wrap=True)
            if before[SHOWN:]:
                console.print(f"and {len(before) - SHOWN:,} more")
            console.print(f"see: vitinit show {failures[0]}{self.results_option}: the traceback", soft_wrap=True)
        if failures or tally.stopped:
            raise typer.Exit(1)

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
        console.print(f"nothing to do: {every}{', '.join(found)}")
        if states["done"]:
            command = f"python -m vitinit.analysis.tables --study {self.setting.study}{self.results_option}"
            console.print(f"next: {command}", soft_wrap=True)


@dataclass
class _Fetch:
    """Reason why a dataset cannot be used, after trying once to download it."""

    folder: Path
    tried: set[str] = field(default_factory=set)

    def __call__(self, dataset: DatasetSpec) -> str | None:
        reason = registry.unavailable(dataset, self.folder)
        if reason and registry.get(dataset.name).downloaded and dataset.name not in self.tried:
            self.tried.add(dataset.name)
            console.print(f"downloading {dataset.name} to {self.folder}")
            try:
                datasets.download(dataset.name, self.folder)
            except VitinitError as error:
                console.print(str(error), style="yellow")
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


def _submitting(context: typer.Context, results: Path, study: str) -> Claim:
    """Keep other launchers from planning and handing out the same study at once."""
    from vitinit.runners.basics.stop import Stop
    from vitinit.runners.launching.execute import check_writable
    from vitinit.runners.one_run import claims

    check_writable(results.absolute() / study)
    try:
        lock = context.with_resource(claims.held(jobs.folder(results.absolute(), study) / "submitting", Stop()))
    except claims.Taken as taken:
        raise VitinitError(f"another launcher is handing out this study: {taken}") from None
    context.call_on_close(lock.finish)
    return lock


def _settled(planned: list[Planned], contents: Outline, setting: Setting) -> list[Planned]:
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


def _shared_out(todo: Todo, profile: profiles.Profile, workers: int, runs_per_job: int | None) -> list[list[Cell]]:
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
    size = runs_per_job or cluster.runs_per_job(seconds, len(cells), profile, workers)
    packs = cluster.packed(cells, work, -(-len(cells) // size))
    console.print(_estimated(profile, packs, seconds, machine, workers))
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
        console.print(f"{len(arrays)} arrays of {sizes} jobs, as the cluster takes no larger ones; the first:")
    its_share = profile.model_copy(update={"parallel": arrays[0].parallel})
    print(script(its_share, arrays[0].size, folder / "TIME", todo.setting.study, folder / "code" / "HASH"))


def _executor(asked: Literal["auto", "inline", "local", "slurm"]) -> tuple[Where, str]:
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
    console.print("there is an sbatch, but no cluster answers: carrying the runs out here", style="yellow")
    return "local", "no cluster answers here"


def _refuse_what_is_for_others(context: typer.Context, executor: Where, why_here: str, workers: int | None) -> None:
    """Refuse options that the chosen executor ignores."""
    for option in ("profile", "runs_per_job") if executor != "slurm" else ():
        if _given(context, option):
            name = option.replace("_", "-")
            why = f", because {why_here}; --executor slurm asks for it all the same" if why_here else ""
            raise VitinitError(
                f"--{name} is for the executor slurm, and the runs would be carried out by {executor}{why}"
            )
    if executor == "inline" and workers and workers > 1:
        raise VitinitError(f"--workers {workers}: the executor inline carries out one run at a time")


def _given(context: typer.Context, option: str) -> bool:
    """Check whether an option stands on the command line, and not in the environment."""
    # By name: typer brings its own click, whose sources are other objects than those of the package click.
    return getattr(context.get_parameter_source(option), "name", "") == "COMMANDLINE"


def _check_that_it_compiles(device: str, deterministic: bool, profile: profiles.Profile | None) -> None:
    """Refuse what torch.compile cannot do; a node may have a compiler that is not here, or that a profile loads."""
    if deterministic and device == "cuda":
        raise VitinitError("--compile: what it measures decides which kernels it makes, so it is never --deterministic")
    lacking = lacks_compiler(device)
    if lacking and not profile:
        raise VitinitError(f"--compile: {lacking}")
    if lacking and profile and not profile.setup:
        console.print(f"--compile: {lacking}; where the jobs run it must be", style="yellow", soft_wrap=True)


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
