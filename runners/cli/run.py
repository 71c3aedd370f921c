"""`vitinit run`: carry out what a grid still lacks, here or as jobs of a cluster."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Literal

import typer

import slurm.jobs
from benchmark.datasets import files as dataset_files
from benchmark.records.store import Outline, Store
from initializers.errors import VitinitError
from runners.cli.options import (
    LOCAL,
    REFERENCE,
    DataOption,
    GridArgument,
    LimitOption,
    OnlyOption,
    ProfileOption,
    ResultsOption,
    SeedsOption,
    console,
)
from runners.cli.plan import left_out, planned_of, planned_runs, print_plan, warn_of_precision
from runners.terminal.duration import duration
from runners.terminal.markup import safe
from slurm import profiles

if TYPE_CHECKING:
    from benchmark.grids.grid import Cell, Grid
    from runners.basics.setting import Setting
    from runners.launching.plan import Planned
    from runners.training.distributed import World

COMPILERS = ("g++", "clang++")
LOOK_S = 5.0
"""Seconds between two looks at the jobs with --wait."""


def run(
    context: typer.Context,
    grid: GridArgument,
    executor: Annotated[
        Literal["auto", "inline", "local", "slurm"],
        typer.Option(
            help="inline: one run after the other in this process. local: several processes here. slurm: jobs of a "
            "cluster. auto: slurm where sbatch answers, else local."
        ),
    ] = "auto",
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="Runs at once, here or in each job. Default: one a core; 1 on a GPU."),
    ] = None,
    profile: ProfileOption = None,
    runs_per_job: Annotated[
        int | None, typer.Option(min=1, help="Default: as many as keep a job busy for ten minutes, where measured.")
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the jobs and say what becomes of the runs.")] = False,
    device: Annotated[
        Literal["auto", "cpu", "cuda"], typer.Option(help="auto: cuda where there is one, or where the profile asks.")
    ] = "auto",
    seeds: SeedsOption = None,
    only: OnlyOption = None,
    limit: LimitOption = None,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Run again what failed; otherwise a failure stays.")
    ] = False,
    force: Annotated[
        list[str] | None,
        typer.Option(metavar="RUN_ID", help="Begin this run anew; its record is kept under another name. Repeatable."),
    ] = None,
    deterministic: Annotated[
        bool, typer.Option("--deterministic", help="The same bits every time on a GPU too; slower.")
    ] = False,
    checkpoint_minutes: Annotated[float, typer.Option(min=0, help="Save a run after so many minutes.")] = 5.0,
    checkpoint_steps: Annotated[int | None, typer.Option(min=1, help="And after so many optimiser steps.")] = None,
    micro_batch: Annotated[
        int | None, typer.Option(min=1, help="At most this many images at once in a process; the batch stays.")
    ] = None,
    loader: Annotated[
        Literal["auto", "resident", "ffcv"],
        typer.Option(
            help="resident: decoded images in memory. ffcv: read from the disk, as vitinit data prepare has left them. "
            "auto: resident where they take at most a quarter of the device's memory. The numbers are the same."
        ),
    ] = "auto",
    compiled: Annotated[
        bool, typer.Option("--compile", help="Train through torch.compile; vitinit speed measures what it gains.")
    ] = False,
    keep_weights: Annotated[
        bool, typer.Option("--keep-weights", help="Keep final weights: weights/RUN_ID.pt beside the records.")
    ] = False,
    probes: Annotated[
        bool,
        typer.Option(help="Measure attention before the first epoch and after each one; the training is the same."),
    ] = True,
    keep_maps: Annotated[
        bool,
        typer.Option(
            "--keep-maps",
            help="Keep attention maps, and what CKA needs, before and after training: maps/RUN_ID.npz beside the "
            "records, 11 MB for a ViT-T of 256 tokens, 0.6 MB for a run of grid small. A run that is recorded already "
            "is not repeated for them.",
        ),
    ] = False,
    maps_at: Annotated[
        list[int] | None, typer.Option(min=1, metavar="EPOCH", help="With --keep-maps: after it too. Repeatable.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the plan, for a cluster the script and an estimate too, and stop.")
    ] = False,
    download: Annotated[bool, typer.Option(help="Download datasets that are not there.")] = True,
    data_dir: DataOption = None,
    results: ResultsOption = LOCAL,
) -> None:
    """Carry out what a grid still lacks. Run the same command again to go on after a stop."""
    from runners.basics.environment import argv, code
    from runners.basics.machine import cores, several
    from runners.basics.setting import Execution, Interval, Setting
    from runners.launching.local import begin_anew, forced, tidy
    from runners.one_run.outcome import skip

    if several() and executor != "inline":
        raise VitinitError(f"--executor {executor}: under torchrun (WORLD_SIZE is set) it must be inline")
    if maps_at and not keep_maps:
        raise VitinitError("--maps-at names more epochs for --keep-maps, which is not given")
    if executor == "auto":
        executor = _where()
    # By name: typer brings its own click, whose sources are other objects than those of the package click.
    if executor != "slurm" and getattr(context.get_parameter_source("profile"), "name", "") == "COMMANDLINE":
        raise VitinitError(f"--profile is for the executor slurm, and the runs would be carried out by {executor}")
    asked = profiles.load(profile) if executor == "slurm" else None
    chosen_device = _device(device, asked)
    if compiled and deterministic and chosen_device == "cuda":
        raise VitinitError("--compile: what it measures decides which kernels it makes, so it is never --deterministic")
    if compiled and not asked and chosen_device == "cpu" and not any(map(shutil.which, COMPILERS)):
        raise VitinitError(f"--compile: on a CPU it needs a C++ compiler, one of {', '.join(COMPILERS)}")
    world = None
    if executor == "inline":
        from runners.launching.together import follow, led, shared

        world = context.with_resource(led(chosen_device))
        if world.rank:
            follow(world)
            return
    planned, contents, loaded = planned_runs(grid, seeds, only, limit, data_dir, results, retry_failed)
    store, folder = Store(results), dataset_files.data_dir(data_dir)
    if dry_run and force:
        for cell in forced(force, [item.cell for item in planned], folder).values():
            console.print(f"--force: {cell.run_id} would begin anew, {safe(cell.describe())}")
    if not dry_run:
        missing = {p.cell.spec.dataset.name for p in planned if p.state == "skip" and not p.cell.misfit}
        for name in missing if download else ():
            if name in dataset_files.FILE_NAMES:
                from benchmark.datasets import load as datasets

                console.print(f"downloading {name} to {safe(str(folder))}")
                try:
                    datasets.download(name, folder)
                except VitinitError as error:
                    console.print(f"[yellow]{safe(str(error))}[/yellow]")
        if force:
            begin_anew(forced(force, [item.cell for item in planned], folder), store, loaded.name)
        if force or (missing and download):
            planned, contents, loaded = planned_runs(grid, seeds, only, limit, data_dir, results, retry_failed)
        for item in planned:
            if item.state == "skip":
                store.write(skip(item.cell, loaded.name, item.reason))
        tidy(results, loaded.name, {item.cell.run_id for item in planned if item.state == "done"})
    at_once = workers or _default_workers(chosen_device, asked)
    threads = cores() if executor == "inline" else max(1, (asked.cpus if asked else cores()) // at_once)
    execution = Execution(
        chosen_device, threads, executor, deterministic, micro_batch=micro_batch, compiled=compiled, loader=loader
    )
    setting = Setting(
        root=results.absolute(),
        study=loaded.name,
        data_dir=folder.absolute(),
        execution=shared(execution, world) if world else execution,
        code={**code(), "argv": argv()},
        grace_s=max(Setting.grace_s, asked.signal_seconds - 30) if asked else Setting.grace_s,
        checkpoint=Interval(checkpoint_minutes, checkpoint_steps),
        keep_weights=keep_weights,
        probes=probes,
        keep_maps=keep_maps,
        maps_at=tuple(maps_at or ()),
        retried=_retried(contents) if retry_failed else {},
    )
    todo = _Todo(loaded, setting, planned, contents, retry_failed)
    if asked:
        _on_cluster(todo, asked, at_once, runs_per_job, dry_run, wait)
        return
    if chosen_device == "cpu":
        warn_of_precision(todo.cells)
    if dry_run:
        print_plan(loaded, planned, contents)
    else:
        _here(todo, at_once, grid, world)


@dataclass(frozen=True)
class _Todo:
    """Runs of a grid, and what is to become of them."""

    loaded: Grid
    setting: Setting
    planned: list[Planned]
    contents: Outline
    retry_failed: bool

    @property
    def cells(self) -> list[Cell]:
        """Those to be carried out now."""
        states = ("to do", "failed") if self.retry_failed else ("to do",)
        return [item.cell for item in self.planned if item.state in states]

    def now(self) -> _Todo:
        """The same runs, as they are now."""
        chosen = {item.cell.run_id for item in self.planned}
        planned, contents = planned_of(self.loaded, Store(self.setting.root), None, self.setting.data_dir)
        setting = replace(self.setting, retried=_retried(contents)) if self.retry_failed else self.setting
        kept = [item for item in planned if item.cell.run_id in chosen]
        return replace(self, setting=setting, planned=kept, contents=contents)


def _retried(contents: Outline) -> dict[str, str]:
    return {run_id: failed.written for run_id, failed in contents.failed.items()}


def _where() -> Literal["slurm", "local"]:
    """Where runs are carried out when nothing is said."""
    if slurm.jobs.current() is not None or shutil.which("sbatch") is None:
        return "local"
    if slurm.jobs.available():
        return "slurm"
    console.print("[yellow]there is an sbatch, but no cluster answers: carrying the runs out here")
    return "local"


def _device(device: str, profile: profiles.Profile | None) -> str:
    if profile:
        if device == "cuda" and not profile.gpus:
            raise VitinitError(f"--device cuda: profile {profile.name!r} asks for no GPU; set gpus in it")
        return ("cuda" if profile.gpus else "cpu") if device == "auto" else device
    from runners.basics.machine import default_device

    if device == "cuda" and default_device() != "cuda":
        raise VitinitError("--device cuda: torch finds no CUDA GPU here")
    return default_device() if device == "auto" else device


def _default_workers(device: str, profile: profiles.Profile | None) -> int:
    """Small models train fastest one a core; a run of several processes has its job to itself."""
    from runners.basics.machine import cores

    if device == "cuda" or (profile and profile.tasks > 1):
        return 1
    return profile.cpus if profile else cores()


def _announce(todo: _Todo) -> None:
    for problem in todo.contents.problems:
        console.print(f"[yellow]not a record, left alone: {safe(problem)}[/yellow]")
    for what, reason in {p.skipped: p.reason for p in todo.planned if p.state == "skip"}.items():
        console.print(f"[yellow]skipping {safe(what)}: {safe(reason)}[/yellow]")
    for line in left_out(todo.planned):
        console.print(f"[yellow]{safe(line)}[/yellow]")
    done = sum(item.state == "done" for item in todo.planned)
    where = safe(str(todo.setting.root / todo.loaded.name))
    console.print(f"{safe(todo.loaded.title)}\n{len(todo.planned)} runs, {done} recorded already in {where}")


def _here(todo: _Todo, workers: int, grid: str, world: World | None) -> None:
    from runners.launching.local import launch
    from runners.terminal.display import Display

    _announce(todo)
    setting = todo.setting
    failures = 0 if todo.retry_failed else sum(item.state == "failed" for item in todo.planned)
    where = safe(str(setting.root / setting.study))
    # runs of other launchers too: one whose owner has gone comes free
    live = [item.cell for item in todo.planned if item.state == "live"]
    cells = todo.cells + [
        cell for cell in live if dataset_files.unavailable(cell.spec.dataset, setting.data_dir) is None
    ]
    try:
        tally = launch(cells, setting, workers, Display(console), world, layout=todo.loaded.layout)
    except KeyboardInterrupt:
        console.print(
            f"stopped; finished runs are recorded in {where}. The same command goes on with the others from where they "
            "have saved."
        )
        raise typer.Exit(130) from None
    elsewhere = f", {tally.elsewhere} run by another launcher" if tally.elsewhere else ""
    stopped = f", {tally.stopped} stopped (the same command goes on with them)" if tally.stopped else ""
    console.print(f"{tally.finished} runs finished, {tally.failed} failed{stopped}{elsewhere}; records in {where}")
    queued = sum(item.state == "queued" for item in todo.planned)
    if queued:
        console.print(f"{queued} runs are in jobs of the cluster and were left to it")
    if failures:
        console.print(f"{failures} runs failed before and were left alone: --retry-failed runs them again")
    if tally.failed or failures:
        console.print(f"see: vitinit status {safe(grid)}")
    if tally.failed or failures or tally.stopped:
        raise typer.Exit(1)


def _on_cluster(
    todo: _Todo, profile: profiles.Profile, workers: int, runs_per_job: int | None, dry_run: bool, wait: bool
) -> None:
    from runners.basics.stop import Stop
    from runners.launching import cluster, jobs, snapshot
    from runners.launching.local import check_writable
    from runners.one_run import claims
    from slurm.submit import max_array_size, script, split

    if workers > 1 and profile.tasks > 1:
        raise VitinitError(f"--workers {workers}: the {profile.tasks} processes of a job carry out one run at a time")
    folder = jobs.folder(todo.setting.root, todo.setting.study)
    if dry_run:
        packs = _packed(todo, profile, workers, runs_per_job)
        print_plan(todo.loaded, todo.planned, todo.contents)
        if packs:
            arrays = split(len(packs), profile.parallel, max_array_size() if slurm.jobs.available() else len(packs))
            if len(arrays) > 1:
                sizes = ", ".join(str(array.size) for array in arrays)
                console.print(f"{len(arrays)} arrays of {sizes} jobs, as the cluster takes no larger ones; the first:")
            print(script(profile, arrays[0].size, folder / "TIME", todo.setting.study, folder / "code" / "HASH"))
        return
    _announce(todo)
    check_writable(todo.setting.root / todo.setting.study)
    Store(todo.setting.root).write_layout(todo.setting.study, todo.loaded.layout)
    try:
        with claims.held(folder / "submitting", Stop()) as lock:  # two launchers at once hand nothing out twice
            todo = todo.now()
            idle = [item.cell for item in todo.planned if item.state == "to do"]
            cluster.settle(idle, todo.setting, jobs.look(todo.setting.root, todo.setting.study).handed)
            todo = todo.now()
            packs = _packed(todo, profile, workers, runs_per_job)
            if packs:
                if todo.setting.code["dirty"]:
                    console.print("[yellow]the checkout has uncommitted changes: they are recorded, and jobs run them")
                code = snapshot.take(folder / "code")
                logs, dispatched = cluster.dispatch(packs, todo.setting, workers, profile, code)
                ids = list(dispatched.jobs)
                several = f"s {ids[0]} to {ids[-1]}" if len(ids) > 1 else f" {ids[0]}"
                console.print(f"handed to SLURM: job{several}; logs: {safe(str(logs))}")
                console.print("see: vitinit status, vitinit slurm logs, vitinit slurm cancel")
            lock.finish()
    except claims.Taken as taken:
        raise VitinitError(f"another launcher is handing out this study: {taken}") from None
    states = Counter(item.state for item in todo.planned)
    if states["queued"] or states["live"]:
        console.print(f"{states['queued']} runs wait in jobs already, {states['live']} are being run")
    failed = 0 if todo.retry_failed else states["failed"]
    if failed:
        console.print(f"{failed} runs failed before and were left alone: --retry-failed runs them again")
    if wait:
        _wait(todo)
    elif failed:
        raise typer.Exit(1)


def _packed(todo: _Todo, profile: profiles.Profile, workers: int, runs_per_job: int | None) -> list[list[Cell]]:
    """The runs of each job; prints how many, and how long they take where that has been measured."""
    from runners.launching import cluster
    from runners.launching.estimate import estimate
    from runners.launching.local import estimated_work
    from runners.launching.preflight import preflight

    cells = todo.cells
    images = preflight(cells, todo.setting)
    measured = estimate(cells, [todo.setting.root, REFERENCE], todo.setting.execution.device)
    work = measured.seconds
    if len(work) < len(cells):
        work = {cell.run_id: estimated_work(cell.spec, images[cell.spec.dataset]) for cell in cells}
    size = runs_per_job or cluster.runs_per_job(measured.seconds, len(cells), profile, workers)
    packs = cluster.packed(cells, work, -(-len(cells) // size)) if cells else []
    console.print(_estimated(profile, packs, measured.seconds, measured.measured_on, workers))
    return packs


def _estimated(
    profile: profiles.Profile,
    packs: list[list[Cell]],
    seconds: dict[str, float],
    measured_on: tuple[str, ...],
    workers: int,
) -> str:
    """One line: runs, jobs, hours."""
    from runners.launching import jobs

    runs = sum(map(len, packs))
    text = f"{runs} runs in {len(packs)} job{'s' * (len(packs) != 1)}"
    if packs:
        longest = max(map(len, packs))
        text += f" of {'up to ' if longest > 1 else ''}{longest}{f', {workers} at once' if workers > 1 else ''}"
    text += f"; profile {profile.name}: {jobs.summary(profile)}"
    if not runs:
        return safe(text)
    if not seconds:
        return safe(f"{text}; how long they take is not known: no run of this kind has been recorded on such a device")
    kind, count = ("GPU", profile.gpus * profile.nodes) if profile.gpus else ("CPU", profile.cpus * profile.tasks)
    total = sum(seconds.values()) / workers
    longest_job = max(sum(seconds.get(cell.run_id, 0.0) for cell in pack) for pack in packs) / workers
    text += f"; about {total / 3600 * count:.2f} {kind}-hours, the longest job {duration(longest_job)}"
    text += f" (measured on {', '.join(measured_on)})"
    if len(seconds) < runs:
        text += f"; without {runs - len(seconds)} runs of kinds that have not been recorded yet"
    return safe(text)


def _wait(todo: _Todo) -> None:
    """Until none of the runs is queued or live; one line for each that ends.

    Raises:
        Exit: with 1 when runs failed or were left undone, with 130 on Ctrl-C.
    """
    known = {item.cell.run_id: item.state for item in todo.planned}
    quiet = 0
    try:
        while quiet < 2:  # between two states of a job squeue may not show it for a moment
            time.sleep(LOOK_S)
            todo = todo.now()
            for item in todo.planned:
                run_id, label = item.cell.run_id, safe(item.cell.describe())
                if item.state in ("done", "failed") and known[run_id] != item.state:
                    failed = f"[red]failed[/red], {safe(item.reason)}"
                    end = failed if item.state == "failed" else f"top-1 {todo.contents.done[run_id].top1:.2f}%"
                    console.print(f"{run_id}  {label}: {end}", highlight=False)
                known[run_id] = item.state
            quiet = 0 if {"queued", "live"} & set(known.values()) else quiet + 1
    except KeyboardInterrupt:
        console.print(f"the jobs go on without this command; vitinit slurm cancel {safe(todo.loaded.name)} ends them")
        raise typer.Exit(130) from None
    counts = Counter(known.values())
    console.print(f"{counts['done']} runs recorded, {counts['failed']} failed, {counts['to do']} left to do")
    for item in todo.planned:
        if item.state == "to do":
            console.print(f"{item.cell.run_id}  {safe(item.cell.describe())}: {safe(item.reason)}", highlight=False)
    if counts["failed"] or counts["to do"]:
        raise typer.Exit(1)
