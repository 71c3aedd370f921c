"""Launch: carry out what a grid still lacks, here or as jobs of a cluster, and say how that ended.

`vitinit run`, `vitinit.run` and `vitinit rank` call `launch`. Imports torch only where runs are carried out.
"""

import os
import shutil
from collections import Counter
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from vitinit.benchmark.datasets import registry as datasets
from vitinit.benchmark.grids.schema import Grid
from vitinit.benchmark.records.record import SkipRecord
from vitinit.benchmark.records.store import Store
from vitinit.benchmark.spec import DatasetSpec
from vitinit.benchmark.terminal import duration
from vitinit.initializers import plugins
from vitinit.initializers.errors import VitinitError, count, located
from vitinit.runners.basics import environment
from vitinit.runners.basics.environment import cores, default_device, gpu_slots, several, unseen_gpu
from vitinit.runners.basics.setting import Execution, Setting, Stop, check_execution, now
from vitinit.runners.launching.selection import choose
from vitinit.runners.launching.view import Display, View, counts, details, look, on_folders, print_plan, run_seconds
from vitinit.runners.launching.work import Executor, Queue, Tally, check_writable, in_order, led, run_locally, work
from vitinit.runners.one_run import claims
from vitinit.runners.options import LaunchOptions, print_table, results_option
from vitinit.runners.tracking.tracker import checked
from vitinit.slurm import jobs as slurm_jobs
from vitinit.slurm import profiles


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
    profile, slots, setting = _setting(grid, options, display, argv)
    executor: Executor | None = None
    study = setting.study_folder
    if not (options.dry_run or options.trial):
        check_writable(study)
    try:
        with ExitStack() as stack:
            if setting.execution.executor == "inline":
                executor, setting = stack.enter_context(led(setting))
                if not executor:
                    return Tally()
            elif not profile:
                executor = run_locally
            elif not options.dry_run:
                # no other launcher may plan and hand out the same study at once
                lock = stack.enter_context(claims.held(study / "jobs/submitting", Stop()))
                stack.callback(lock.finish)
            view, todo = _todo(grid, options, display, setting, slots)
            failed_before = [cell.run_id for cell in view.cells("failed") if not options.retry_failed]
            if options.dry_run:
                print_plan(view)
            else:
                _begin(grid, view, setting, failed_before, display, options.trial)
            if profile:
                from vitinit.runners.launching.cluster import hand_out

                executor = hand_out(view, todo, options, display, profile)
                stack.close()
            if options.dry_run:
                return Tally()
            if options.trial and todo.cells:
                return try_out(todo)
            for cell, state, reason in view.planned if options.trial else ():
                if state == "skip" and not cell.misfit:
                    raise VitinitError(f"nothing to try: {reason}")
            return _finish(view, todo, executor, failed_before, display)
    except claims.Taken as taken:
        raise VitinitError(f"another launcher is handing out this study: {taken}") from None
    except KeyboardInterrupt as interrupt:
        message = str(interrupt) or "stopped; jobs that were being handed over are cancelled"
        if options.trial:
            message = "stopped; --try records nothing"
        elif not profile:
            message = f"stopped; finished runs are recorded in {study}. The same command resumes the others"
        raise KeyboardInterrupt(message) from None


def _finish(view: View, todo: Queue, executor: Executor | None, failed_before: list[str], display: Display) -> Tally:
    setting, tally = todo.setting, Tally()
    if todo.cells and executor:
        tally = work(todo, executor, display)
        others = len(todo.cells) - len(todo.taken) if setting.execution.executor != "slurm" else 0
        elsewhere = f", {others} run by another launcher" if others else ""
        stopped = f", {tally.stopped} stopped (the same command resumes them)" if tally.stopped else ""
        display.say(f"{count(tally.finished, 'run')} finished, {len(tally.failures)} failed{stopped}{elsewhere}")
    tally.failures += failed_before
    if not todo.cells:
        display.say(f"nothing to do: {counts(view)}")
        if view.contents.done:
            display.say(f"next: vitinit tables --study {setting.study}{results_option(setting.root)}")
    if tally.failures:
        display.say(f"see: vitinit show {tally.failures[0]}{results_option(setting.root)}: the traceback")
    return tally


def _setting(
    grid: Grid, options: LaunchOptions, display: Display, argv: list[str] | None
) -> tuple[profiles.Profile | None, int, Setting]:
    """Return the request of each job, where there are any; how many runs are carried out at once; where and how.

    Raises:
        VitinitError: it is not there, or the options do not go together.
    """
    executor = "local" if options.trial else options.executor
    if several() and executor != "inline":
        raise VitinitError("under torchrun (WORLD_SIZE is set) write --executor inline, and no --try")
    if executor == "auto":
        reachable = shutil.which("sbatch") and slurm_jobs.current() is None  # in a job, runs are carried out there
        executor = "slurm" if reachable and slurm_jobs.available() else "local"
        if reachable and executor == "local":
            display.say("there is an sbatch, but no cluster answers: carrying the runs out here", "yellow")
    if options.trial and options.dry_run:
        raise VitinitError("--try takes steps, and --dry-run none: give one of them")
    if (options.profile or options.add) and executor != "slurm":  # a profile of the environment is for a cluster
        given = "--profile" if options.profile else "--add"
        mend = "leave it out" if options.trial or options.executor != "auto" else "--executor slurm"
        raise VitinitError(
            f"{given} is for the executor slurm, and the runs would be carried out by {executor}: {mend}"
        )
    job = profiles.load(options.profile or os.environ.get("VITINIT_PROFILE")) if executor == "slurm" else None
    device = resolve_device(options.device, job)
    compiled = options.compiled and (device == "cuda" or options.device == "cpu")
    if options.compiled and not compiled:
        display.say("--compile is for a GPU and is off here; --compile --device cpu compiles for the CPU", "yellow")
    cpus, tasks, variables = (job.cpus, job.tasks, job.environment) if job else (cores(), 1, {})
    gpus = 0
    if device == "cuda":
        gpus = job.gpus if job else len(gpu_slots())
    if git := environment.code().get("git"):
        display.say(f"records will not tell the commit of {environment.ROOT}, nor if it was changed: {git}", "yellow")
    alone = executor == "inline" or tasks > 1
    if alone and (options.workers or 1) > 1:
        who = "executor inline carries" if executor == "inline" else f"{tasks} processes of a job carry"
        raise VitinitError(f"--workers {options.workers}: the {who} out one run at a time")
    # one run a core, where small models train fastest, or one a GPU; one of several processes has its job to itself
    workers = options.workers or (1 if alone else gpus or cpus)
    if device == "cuda" and executor == "local" and not options.workers:
        from vitinit.runners.basics.gpu import runs_at_once
        from vitinit.runners.loaders.base import device_memory

        room = device_memory(device), cpus // gpus
        at_once = min((runs_at_once(cell.spec, *room) for cell in grid.cells), default=1)
        display.say(f"{count(at_once, 'run')} at once on each GPU; --workers N changes it")
        workers = gpus * at_once
    measures = tuple(plugins.pinned(name, Path.cwd()) for name in options.measures or ())
    for name in measures:
        from vitinit.runners.probes.quantities import load_measure

        load_measure(name)
    threads = {**os.environ, **variables}.get("OMP_NUM_THREADS", "").lstrip("0")
    return (
        job,
        workers,
        Setting(
            root=options.results.absolute(),
            study=grid.name,
            data_dir=datasets.data_dir(options.data_dir).absolute(),
            execution=Execution(
                device=device,
                threads=int(threads) if threads.isdecimal() else max(1, cpus // workers),
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
            measures=measures,
            sharing=-(-workers // max(1, gpus)),
        ),
    )


def resolve_device(device: str, profile: profiles.Profile | None) -> str:
    """Return the device that `--device` means, here or in the jobs of a profile.

    Raises:
        VitinitError: it is not there, or torch does not see it.
    """
    if device == "cpu":
        return "cpu"
    if profile:
        if device == "cuda" and not profile.gpus:
            raise VitinitError(f"--device cuda: profile {profile.name!r} asks for no GPU; set gpus in it")
        return "cuda" if profile.gpus else "cpu"
    if default_device() == "cuda":
        return "cuda"
    if why := unseen_gpu() or "torch finds no CUDA GPU here" * (device == "cuda"):
        raise VitinitError(f"--device {device}: {why}; --device cpu trains on the CPU")
    return "cpu"


def _todo(grid: Grid, options: LaunchOptions, display: Display, setting: Setting, slots: int) -> tuple[View, Queue]:
    """Return what is seen and what is to be carried out.

    But for a dry run or a trial, missing data are fetched first. Runs of other launchers are in the work: they may
    come free.
    """

    def fetched(dataset: DatasetSpec) -> str | None:
        """Return the reason why a dataset cannot be used, after trying to download it."""
        reason = datasets.unavailable(dataset, setting.data_dir)
        if not reason or not datasets.get(dataset.name).downloaded:
            return reason
        display.say(f"downloading {dataset.name} to {setting.data_dir}")
        try:
            datasets.download(dataset.name, setting.data_dir)
        except VitinitError as error:
            display.say(str(error), "yellow")
        return datasets.unavailable(dataset, setting.data_dir)

    missing = None if options.dry_run or options.trial else fetched
    view = look(choose(grid, options.only), Store(options.results), options.data_dir, missing)
    for cell in view.cells("live"):
        owner = view.owners[cell.run_id]
        if owner.source not in ("", setting.code["source"]):
            raise VitinitError(
                f"{cell.describe()} is being run by {owner.describe()} with other code than is here: bring this "
                "machine to the same commit, or wait until it has ended"
            )
    cells = view.cells("to do", "live")
    if options.retry_failed:
        cells = view.cells("to do", "live", "failed")
        setting = replace(setting, retried={run_id: failed.written for run_id, failed in view.contents.failed.items()})
    for cell in cells:
        check_execution(cell.spec, setting.execution)
    seconds = run_seconds(cells, view.contents.done.values())
    return view, Queue(in_order(cells, seconds), setting, slots, seconds)


def _begin(grid: Grid, view: View, setting: Setting, failed_before: list[str], display: Display, trial: bool) -> None:
    """Say what there is to do; but for a trial, record which runs do not fit, and no longer those that do."""
    study, store = setting.study, setting.store
    display.say(grid.title)
    display.say(counts(view) if trial else f"{counts(view)}; records in {setting.study_folder}")
    for line in (*details(view), *on_folders(view)):
        display.say(line, "yellow")
    if failed_before:
        display.say(f"{count(len(failed_before), 'run')} failed before; --retry-failed runs them again")
    if trial:
        return
    for cell, state, reason in view.planned:
        run_id = cell.run_id
        if state == "skip" and cell.misfit:
            store.write(
                SkipRecord(run_id=run_id, study=study, row=cell.row, spec=cell.spec, written=now(), reason=reason)
            )
        elif run_id in view.contents.skipped:
            store.remove(study, run_id, "skipped")
    store.write_layout(study, grid.layout)


def try_out(todo: Queue) -> Tally:
    """Try the first run of every row and dataset, one after the other; print what fails and how long all take."""
    from vitinit.runners.one_run.carry_out import measured_seconds

    runs = Counter(cell.place for cell in todo.cells)
    rows, times, tally = [], [0.0], Tally()
    for place, number in runs.items():
        cell = next(cell for cell in todo.cells if cell.place == place)
        try:
            seconds = measured_seconds(cell, todo.setting)
            times += [seconds] * number
            rows.append((*place, f"about {duration(seconds)}"))
        except Exception as error:  # of anyone's model or method
            tally.failures.append(cell.run_id)
            rows.append((*place, f"fails, {type(error).__name__}: {located(error)}"))
    print_table(("row", "dataset", "each run"), rows)
    print(
        f"{count(len(todo.cells), 'run')}, {todo.slots} at once: "
        f"about {duration(max(*times, sum(times) / todo.slots))}"  # at least that of the longest
    )
    return tally
