"""What `vitinit run` does with a cluster: hand the runs over as jobs, and wait for them if asked."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING

import typer

from vitinit.benchmark.records.store import Store
from vitinit.initializers.errors import VitinitError, count
from vitinit.runners.cli.options import REFERENCE, console
from vitinit.runners.cli.plan import print_plan
from vitinit.runners.cli.run.todo import Todo, announce, say_left_alone, say_nothing_to_do
from vitinit.runners.terminal.display import together
from vitinit.runners.terminal.duration import duration
from vitinit.slurm import jobs as slurm_jobs
from vitinit.slurm import profiles

if TYPE_CHECKING:
    from vitinit.benchmark.grids.schema import Cell


LOOK_S = 5.0
"""Seconds between two looks at the jobs with --wait."""


def run_on_cluster(
    todo: Todo,
    profile: profiles.Profile,
    workers: int,
    runs_per_job: int | None,
    dry_run: bool,
    wait: bool,
    brief: bool,
) -> None:
    """Hand the runs to the cluster, or with `dry_run` show the script that would be handed over.

    With `wait` it says how runs end; `brief`: with one line for the finished runs of a row and dataset.

    Raises:
        VitinitError: the profile does not allow so many workers, or another launcher is handing out this study.
        Exit: with 1 when runs failed or, with `wait`, were left undone; with 130 on Ctrl-C.
    """
    from vitinit.runners.basics.stop import Stop
    from vitinit.runners.launching import cluster, jobs, snapshot
    from vitinit.runners.launching.launch import check_writable
    from vitinit.runners.one_run import claims
    from vitinit.slurm.submit import max_array_size, script, split

    if workers > 1 and profile.tasks > 1:
        raise VitinitError(f"--workers {workers}: the {profile.tasks} processes of a job carry out one run at a time")
    folder = jobs.folder(todo.setting.root, todo.setting.study)
    if dry_run:
        packs = _packed(todo, profile, workers, runs_per_job)
        print_plan(todo.loaded, todo.planned, todo.contents)
        if packs:
            arrays = split(len(packs), profile.parallel, max_array_size() if slurm_jobs.available() else len(packs))
            if len(arrays) > 1:
                sizes = ", ".join(str(array.size) for array in arrays)
                console.print(f"{len(arrays)} arrays of {sizes} jobs, as the cluster takes no larger ones; the first:")
            its_share = profile.model_copy(update={"parallel": arrays[0].parallel})
            print(script(its_share, arrays[0].size, folder / "TIME", todo.setting.study, folder / "code" / "HASH"))
        return
    announce(todo)
    check_writable(todo.setting.root / todo.setting.study)
    Store(todo.setting.root).write_layout(todo.setting.study, todo.layout)
    try:
        with claims.held(folder / "submitting", Stop()) as lock:  # two launchers at once hand nothing out twice
            todo = todo.now()
            idle = [item.cell for item in todo.planned if item.state == "to do"]
            cluster.settle(idle, todo.setting, jobs.look(todo.setting.root, todo.setting.study).handed)
            todo = todo.now()
            packs = _packed(todo, profile, workers, runs_per_job)
            if packs:
                if todo.setting.code["dirty"]:
                    console.print(
                        "the checkout has uncommitted changes: they are recorded, and jobs run them", style="yellow"
                    )
                code = snapshot.take(folder / "code")
                todo = todo.begin_anew()
                logs, dispatched = cluster.dispatch(packs, todo.setting, workers, profile, code)
                ids = list(dispatched.jobs)
                several = f"s {ids[0]} to {ids[-1]}" if len(ids) > 1 else f" {ids[0]}"
                console.print(f"handed to SLURM: job{several}; logs: {logs}")
                console.print("see: vitinit status, vitinit slurm logs, vitinit slurm cancel")
            lock.finish()
    except claims.Taken as taken:
        raise VitinitError(f"another launcher is handing out this study: {taken}") from None
    states = Counter(item.state for item in todo.planned)
    if not packs:
        say_nothing_to_do(todo)
    elif states["queued"] or states["live"]:
        console.print(f"{count(states['queued'], 'run')} in jobs already, {states['live']} being carried out")
    failed = 0 if todo.retry_failed else states["failed"]
    if failed:
        console.print(say_left_alone(failed))
    if wait:
        _wait(todo, brief)
    elif failed:
        raise typer.Exit(1)


def _packed(todo: Todo, profile: profiles.Profile, workers: int, runs_per_job: int | None) -> list[list[Cell]]:
    """The runs of each job; prints how many, and how long they take where that has been measured."""
    from vitinit.runners.launching import cluster
    from vitinit.runners.launching.estimate import estimate
    from vitinit.runners.launching.launch import estimated_work
    from vitinit.runners.launching.preflight import preflight

    cells = todo.cells
    images = preflight(cells, todo.setting)
    measured = estimate(cells, [todo.setting.root, REFERENCE], todo.setting.execution.device)
    work = measured.seconds
    if len(work) < len(cells):
        work = {cell.run_id: estimated_work(cell.spec, images[cell.spec.dataset]) for cell in cells}
    size = runs_per_job or cluster.runs_per_job(measured.seconds, len(cells), profile, workers)
    packs = cluster.packed(cells, work, -(-len(cells) // size)) if cells else []
    if packs:
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
    from vitinit.runners.launching import jobs

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
    text += f" (measured on {', '.join(measured_on)})"
    if len(seconds) < runs:
        text += f"; without {count(runs - len(seconds), 'run')} of a kind that has not been recorded yet"
    return text


def _wait(todo: Todo, brief: bool) -> None:
    """Until none of the runs is queued or live; one line for each that ends, or `brief` for those of a place.

    Raises:
        Exit: with 1 when runs failed or were left undone, with 130 on Ctrl-C.
    """
    known = {item.cell.run_id: item.state for item in todo.planned}
    quiet, unsaid = 0, set[tuple[str, str]]()
    try:
        while quiet < 2:  # between two states of a job squeue may not show it for a moment
            time.sleep(LOOK_S)
            todo = todo.now()
            for item in todo.planned:
                run_id, label = item.cell.run_id, item.cell.describe()
                ended = item.state in ("done", "failed") and known[run_id] != item.state
                if ended and brief and item.state == "done":
                    unsaid.add(item.cell.place)
                elif ended:
                    failed = item.state == "failed"
                    end = f"failed, {item.reason}" if failed else todo.contents.done[run_id].last.scored(2)
                    console.print(f"{run_id}  {label}: {end}", style="red" if failed else "")
                known[run_id] = item.state
            over = unsaid - {item.cell.place for item in todo.planned if item.state in ("queued", "live")}
            for place in sorted(over):
                ids = [item.cell.run_id for item in todo.planned if item.cell.place == place and item.state == "done"]
                console.print(together(place, [todo.contents.done[run_id].last for run_id in ids]))
            unsaid -= over
            quiet = 0 if {"queued", "live"} & set(known.values()) else quiet + 1
    except KeyboardInterrupt:
        console.print(f"the jobs go on without this command; vitinit slurm cancel {todo.loaded.name} ends them")
        raise typer.Exit(130) from None
    counts = Counter(known.values())
    console.print(f"{count(counts['done'], 'run')} recorded, {counts['failed']} failed, {counts['to do']} left to do")
    for item in todo.planned:
        if item.state == "to do":
            console.print(f"{item.cell.run_id}  {item.cell.describe()}: {item.reason}")
    if counts["failed"] or counts["to do"]:
        raise typer.Exit(1)
