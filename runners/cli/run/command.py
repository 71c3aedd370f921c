"""`vitinit run`: carry out what a grid still lacks, here or as jobs of a cluster."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import typer

from vitinit.benchmark.datasets import load as datasets
from vitinit.benchmark.datasets import registry
from vitinit.benchmark.records.store import Store
from vitinit.initializers.errors import VitinitError
from vitinit.runners.basics.machine import lacks_compiler
from vitinit.runners.cli.options import (
    LOCAL,
    DataOption,
    GridArgument,
    LimitOption,
    OnlyOption,
    ProfileOption,
    ResultsOption,
    SeedsOption,
    SetOption,
    WeightsOption,
    console,
)
from vitinit.runners.cli.plan import limited, load_grid, planned_of, print_plan, warn_of_precision
from vitinit.runners.cli.run import options
from vitinit.runners.cli.run.here import run_here
from vitinit.runners.cli.run.on_cluster import run_on_cluster
from vitinit.runners.cli.run.todo import Todo, retried, to_begin_anew, wanted
from vitinit.runners.launching.tidying import forced
from vitinit.slurm import jobs as slurm_jobs
from vitinit.slurm import profiles

if TYPE_CHECKING:
    from vitinit.runners.launching.plan import Planned

Executor = Literal["inline", "local", "slurm"]


def run(
    context: typer.Context,
    grid: GridArgument,
    seeds: SeedsOption = None,
    only: OnlyOption = None,
    limit: LimitOption = None,
    weights: WeightsOption = None,
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
    micro_batch: options.MicroBatchOption = None,
    loader: options.LoaderOption = "auto",
    compiled: options.CompileOption = False,
    checkpoint_minutes: options.CheckpointMinutesOption = 5.0,
    checkpoint_steps: options.CheckpointStepsOption = None,
    keep_weights: options.KeepWeightsOption = False,
    probes: options.ProbesOption = True,
    keep_maps: options.KeepMapsOption = False,
    maps_at: options.MapsAtOption = None,
    deterministic: options.DeterministicOption = False,
) -> None:
    """Carry out what a grid still lacks. Run the same command again to go on after a stop.

    Exit code 1: a run has failed or was stopped; 130: Ctrl-C; 2: refused.
    """
    from vitinit.runners.basics.environment import argv, code
    from vitinit.runners.basics.machine import cores
    from vitinit.runners.basics.setting import Execution, SaveInterval, Setting

    if maps_at and not keep_maps:
        raise VitinitError("--maps-at names more epochs for --keep-maps, which is not given")
    where = _executor(executor)
    _refuse_what_is_for_others(context, where, executor == "auto", workers)
    job = profiles.load(profile) if where == "slurm" else None
    chosen_device = _device(device, job)
    if compiled:
        _check_that_it_compiles(chosen_device, deterministic, here=job is None)
    world = None
    if where == "inline":
        from vitinit.runners.launching.together import follow, led, shared

        world = context.with_resource(led(chosen_device))
        if world.rank:
            follow(world)
            return
    loaded = load_grid(grid, seeds, weights, fixed)
    store, folder = Store(results), datasets.data_dir(data_dir)
    planned, contents = planned_of(loaded, store, only, data_dir)
    if contents.unreadable:
        more = f" (and {len(contents.unreadable) - 1} more)" if len(contents.unreadable) > 1 else ""
        raise VitinitError(
            f"{contents.unreadable[0]}{more}. It may be a record: chmod -R a+rX by its owner, or another --results"
        )
    last = max((item.cell.spec.recipe.epochs for item in planned), default=0)
    if maps_at and max(maps_at) > last:
        raise VitinitError(f"--maps-at {max(maps_at)}: the last epoch of these runs is {last}")
    if download and not dry_run and _download(planned, folder):
        planned, contents = planned_of(loaded, store, only, data_dir)
    anew = forced(force or [], [item.cell for item in planned], folder)
    first = {cell.run_id for cell in anew.values()}
    planned = limited(to_begin_anew(planned, anew), limit, wanted(retry_failed), first)
    if dry_run:
        for cell in anew.values():
            console.print(f"--force: {cell.run_id} would begin anew, {cell.describe()}")
    else:
        _settle(planned, results, loaded.name)
    at_once = workers or default_workers(chosen_device, job)
    threads = cores() if where == "inline" else max(1, (job.cpus if job else cores()) // at_once)
    execution = Execution(
        chosen_device, threads, where, deterministic, micro_batch=micro_batch, compiled=compiled, loader=loader
    )
    setting = Setting(
        root=results.absolute(),
        study=loaded.name,
        data_dir=folder.absolute(),
        execution=shared(execution, world) if world else execution,
        code={**code(), "argv": argv()},
        grace_s=max(Setting.grace_s, job.signal_seconds - 30) if job else Setting.grace_s,
        checkpoint=SaveInterval(checkpoint_minutes, checkpoint_steps),
        keep_weights=keep_weights,
        probes=probes,
        keep_maps=keep_maps,
        maps_at=tuple(maps_at or ()),
        retried=retried(contents) if retry_failed else {},
    )
    todo = Todo(loaded, setting, planned, contents, retry_failed, anew)
    if job:
        run_on_cluster(todo, job, at_once, runs_per_job, dry_run, wait, brief)
        return
    if chosen_device == "cpu":
        warn_of_precision(todo.cells)
    if dry_run:
        print_plan(loaded, planned, contents)
    else:
        run_here(todo, at_once, world, brief)


def _executor(asked: Literal["auto", "inline", "local", "slurm"]) -> Executor:
    """Where the runs are carried out.

    Raises:
        VitinitError: this is one of several processes, and the executor is not for them.
    """
    from vitinit.runners.basics.machine import several

    if several() and asked != "inline":
        raise VitinitError(f"--executor {asked}: under torchrun (WORLD_SIZE is set) it must be inline")
    return _where() if asked == "auto" else asked


def _refuse_what_is_for_others(context: typer.Context, executor: Executor, chosen: bool, workers: int | None) -> None:
    """An option that the executor, which we may have chosen, could only pass over."""
    for option in ("profile", "runs_per_job") if executor != "slurm" else ():
        if _given(context, option):
            name = option.replace("_", "-")
            why = f", because {_why_here()}; --executor slurm asks for it all the same" if chosen else ""
            raise VitinitError(
                f"--{name} is for the executor slurm, and the runs would be carried out by {executor}{why}"
            )
    if executor == "inline" and workers and workers > 1:
        raise VitinitError(f"--workers {workers}: the executor inline carries out one run at a time")


def _given(context: typer.Context, option: str) -> bool:
    """Whether an option stands on the command line, and not in the environment."""
    # By name: typer brings its own click, whose sources are other objects than those of the package click.
    return getattr(context.get_parameter_source(option), "name", "") == "COMMANDLINE"


def _check_that_it_compiles(device: str, deterministic: bool, here: bool) -> None:
    if deterministic and device == "cuda":
        raise VitinitError("--compile: what it measures decides which kernels it makes, so it is never --deterministic")
    if here and device == "cpu" and (lacking := lacks_compiler()):
        raise VitinitError(f"--compile: {lacking}")


def _settle(planned: list[Planned], results: Path, study: str) -> None:
    """Record what is skipped, and no longer what is not, and remove what recorded runs have left behind."""
    from vitinit.runners.launching.tidying import tidy
    from vitinit.runners.one_run.outcome import skip

    for item in planned:
        if item.state == "skip":
            Store(results).write(skip(item.cell, study, item.reason))
        else:
            Store(results).unskip(study, item.cell.run_id)
    tidy(results, study, {item.cell.run_id for item in planned if item.state == "done"})


def _download(planned: list[Planned], folder: Path) -> bool:
    """Get datasets that are missing; whether any was."""
    missing = {item.cell.spec.dataset.name for item in planned if item.state == "skip" and not item.cell.misfit}
    for name in sorted(missing):
        if registry.get(name).downloaded:
            console.print(f"downloading {name} to {folder}")
            try:
                datasets.download(name, folder)
            except VitinitError as error:
                console.print(str(error), style="yellow")
    return bool(missing)


def _where() -> Executor:
    """Where runs are carried out when nothing is said."""
    if slurm_jobs.current() is not None or shutil.which("sbatch") is None:
        return "local"
    if slurm_jobs.available():
        return "slurm"
    console.print("there is an sbatch, but no cluster answers: carrying the runs out here", style="yellow")
    return "local"


def _why_here() -> str:
    """Why `_where` does not say slurm."""
    if slurm_jobs.current() is not None:
        return "this is a job of it"
    return "there is no sbatch here" if shutil.which("sbatch") is None else "no cluster answers here"


def _device(device: str, profile: profiles.Profile | None) -> str:
    if profile:
        if device == "cuda" and not profile.gpus:
            raise VitinitError(f"--device cuda: profile {profile.name!r} asks for no GPU; set gpus in it")
        return ("cuda" if profile.gpus else "cpu") if device == "auto" else device
    from vitinit.runners.basics.machine import default_device

    if device == "cuda" and default_device() != "cuda":
        raise VitinitError("--device cuda: torch finds no CUDA GPU here")
    return default_device() if device == "auto" else device


def default_workers(device: str, profile: profiles.Profile | None) -> int:
    """Small models train fastest one a core; a run of several processes has its job to itself."""
    from vitinit.runners.basics.machine import cores

    if device == "cuda" or (profile and profile.tasks > 1):
        return 1
    return profile.cpus if profile else cores()
