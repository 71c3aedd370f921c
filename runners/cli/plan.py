"""Commands of `vitinit` on the runs of a grid: `plan`, `status`, `run`, `rank` and `slurm cancel`.

None imports torch before runs are carried out, but for `rank`, which tries the method first.
"""

import os
import re
import shlex
import sys
import time
from collections import Counter
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from vitinit.benchmark.datasets import registry as datasets
from vitinit.benchmark.files.atomic import write_with_folder
from vitinit.benchmark.files.yaml_text import mapping, to_yaml
from vitinit.benchmark.grids import grid as grids
from vitinit.benchmark.grids.schema import Cell
from vitinit.benchmark.records import looks
from vitinit.benchmark.records.store import LOCAL, REFERENCE, Store
from vitinit.benchmark.terminal import duration
from vitinit.initializers import plugins
from vitinit.initializers.errors import VitinitError, count, os_errors
from vitinit.runners.basics.environment import ROOT, default_device
from vitinit.runners.basics.setting import Execution, Setting
from vitinit.runners.launching.launch import launch
from vitinit.runners.launching.selection import choose, load_grid
from vitinit.runners.launching.view import STATES, Display, counts, details, estimate, jobs_of, look, print_plan
from vitinit.runners.options import (
    KEEPING,
    SPEED,
    WHAT,
    WHERE,
    DataOption,
    DeviceName,
    ExecutorName,
    GridArgument,
    LaunchOptions,
    LoaderName,
    OnlyOption,
    ResultsOption,
    SeedsOption,
    SetOption,
    console,
    option,
    print_table,
    results_option,
    say,
)
from vitinit.slurm import jobs as slurm_jobs


def plan(
    grid: GridArgument,
    seeds: SeedsOption = None,
    only: OnlyOption = None,
    fixed: SetOption = None,
    data_dir: DataOption = None,
    results: ResultsOption = LOCAL,
) -> None:
    """Show every run of a grid and its state: recorded, live, skipped, to do. Nothing is written."""
    view = look(choose(load_grid(grid, seeds, fixed), only), Store(results), data_dir)
    print_plan(view)
    if left := [cell for cell, state, _ in view.planned if state != "done" and not cell.misfit]:
        if told := estimate(left, view.contents.done.values()):
            say(told)
        elif view.cells("to do"):
            say(f"vitinit run {shlex.join(sys.argv[2:])} --try measures how long they take, and says what will fail")


def status(
    grid: GridArgument,
    seeds: SeedsOption = None,
    only: OnlyOption = None,
    fixed: SetOption = None,
    data_dir: DataOption = None,
    results: ResultsOption = LOCAL,
    watch: Annotated[bool, typer.Option("--watch", help="Again every ten seconds, until no worker is left.")] = False,
) -> None:
    """Count what is done, live, failed, skipped and still to do, by row and dataset."""
    chosen = choose(load_grid(grid, seeds, fixed), only)
    while True:
        view = look(chosen, Store(results), data_dir)
        if watch:
            console.clear()
        console.print(chosen.title)
        console.print(counts(view))
        states = [state for state in STATES if view.cells(state)]
        number = Counter((cell.place, state) for cell, state, _ in view.planned)
        rows = [
            (*place, *(str(number[place, state] or "") for state in states))
            for place in dict.fromkeys(cell.place for cell in chosen.cells)
        ]
        print_table(("row", "dataset", *states), rows, right=states)
        for line in details(view):
            say(line)
        if not watch or not (view.jobs.alive or view.cells("live") or (view.jobs.silence and view.cells("to do"))):
            return
        time.sleep(10)


def run(
    grid: GridArgument,
    only: OnlyOption = None,
    retry_failed: Annotated[bool, option(WHAT, "Run again what failed.", "--retry-failed")] = False,
    dry_run: Annotated[bool, option(WHAT, "Show the plan and stop.", "--dry-run")] = False,
    trial: Annotated[bool, option(WHAT, "Two steps of each row here: what fails, how long.", "--try")] = False,
    executor: Annotated[
        ExecutorName, option(WHERE, "inline, local (processes), slurm. Default: auto.", metavar="NAME")
    ] = "auto",
    device: Annotated[
        DeviceName, option(WHERE, "cpu or cuda. Default: cuda if there is one.", metavar="NAME")
    ] = "auto",
    profile: Annotated[str | None, option(WHERE, "A job's requests: a name or YAML file.", metavar="NAME")] = None,
    wait: Annotated[bool, option(WHERE, "Wait for the jobs, say how they ended.", "--wait")] = False,
    add: Annotated[int | None, option(WHERE, "Submit N more jobs.", metavar="N", min=1)] = None,
    data_dir: DataOption = None,
    results: ResultsOption = LOCAL,
    workers: Annotated[
        int | None, option(SPEED, "Runs at once. Default: one a core; by size on a GPU.", metavar="N", min=1)
    ] = None,
    micro_batch: Annotated[
        int | None, option(SPEED, "Images at once; the batch stays as it is.", metavar="N", min=1)
    ] = None,
    loader: Annotated[LoaderName, option(SPEED, "resident (memory) or ffcv.", metavar="NAME")] = "auto",
    compiled: Annotated[bool, option(SPEED, "Train with torch.compile (GPU).", "--compile")] = False,
    checkpoint_minutes: Annotated[
        float, option(KEEPING, "Minutes between checkpoints. Default: 5.", metavar="N", min=0)
    ] = 5.0,
    keep_weights: Annotated[
        bool, option(KEEPING, "Keep the final weights in weights/RUN_ID.pt.", "--keep-weights")
    ] = False,
    track: Annotated[
        list[str] | None, option(KEEPING, "Log to tensorboard, wandb, file.py:NAME.", metavar="NAME")
    ] = None,
    measures: Annotated[
        list[str] | None, option(KEEPING, "Measure with your own, too.", "--probe", "--metric", metavar="FILE.py:NAME")
    ] = None,
    probes: Annotated[bool, option(KEEPING, "Measure attention during training. Default: on.")] = True,
    keep_maps: Annotated[
        bool, option(KEEPING, "Keep attention maps before and after training, for figures.", "--keep-maps")
    ] = False,
    deterministic: Annotated[bool, option(SPEED, "The same bits on a GPU; slower.", "--deterministic")] = False,
    seeds: SeedsOption = None,
    fixed: SetOption = None,
) -> None:
    """Run every experiment of a grid that has no record yet. After a stop, the same command resumes.

    Exit code 1: a run has failed or was stopped; 130: Ctrl-C; 2: refused.
    """
    asked = shlex.join([grid, *(f"--set={value}" for value in fixed or ())]) + results_option(results)
    if seeds:
        asked += f" --seeds {shlex.quote(seeds)}"
    given = locals()
    options = LaunchOptions(**{field.name: given[field.name] for field in fields(LaunchOptions)})
    try:
        tally = launch(load_grid(grid, seeds, fixed), options, Display(console))
    except KeyboardInterrupt as stopped:  # typer's exit code of it is 130
        console.print(str(stopped) or "stopped")
        raise
    raise typer.Exit(tally.exit_code)


slurm_app = typer.Typer(help="Jobs of a cluster: cancel them.", no_args_is_help=True)


@slurm_app.callback()
def _group() -> None:
    """Keep `cancel` a command of its own, as it is the only one."""


@slurm_app.command()
def cancel(grid: GridArgument, results: ResultsOption = LOCAL) -> None:
    """Cancel all jobs of a grid. Its runs write a checkpoint, and the same `run` command resumes them."""
    study = Path(grid).stem if grid.endswith((".yaml", ".yml")) else grid
    jobs = jobs_of(results / study)
    if not jobs.submissions:
        raise VitinitError(f"no run of {study!r} in {results} was submitted to a cluster")
    if jobs.silence:
        raise VitinitError(f"cannot cancel jobs of {study!r}: {jobs.silence}")
    job_ids = [job_id for job_id, job in jobs.alive.items() if submitted_here(jobs.submissions[job.name], results)]
    slurm_jobs.cancel(job_ids)
    console.print(f"cancelled {count(len(job_ids), 'job')}" if job_ids else "no job of it is left to cancel")
    if others := sorted(jobs.alive.keys() - {*job_ids}):
        console.print(f"left alone, as this user did not submit them from {results / study}: {', '.join(others)}")


def submitted_here(submission: Path, results: Path) -> bool:
    """Return True if this user submitted jobs from this very folder, and it is no link to that of another study.

    One that somebody else made may be called after any job of this user's.
    """
    try:
        own = (submission / slurm_jobs.SCRIPT).lstat().st_uid == os.getuid()
    except OSError:
        return False
    return own and submission.resolve() == results.resolve() / submission.relative_to(results)


TIERS = {"quick": ["standard-mechanism", "catalogue-small"], "standard": ["standard"]}
"""Grids of the same model and length, beside whose records a tier stands; it has the setting of the first."""


def rank(
    method: Annotated[
        str,
        typer.Argument(
            help="A method: its name, {name: NAME, PARAMETER: VALUE}, path/to/file.py:Class or package.module:Class."
        ),
    ],
    tier: Annotated[
        Literal["quick", "standard"],
        typer.Option(help="quick: 0.1 M parameters, five epochs. standard: 0.3 M, forty: a seed takes hours."),
    ] = "quick",
    base: Annotated[
        str | None, typer.Option(help="Base under the method, written like METHOD. Default: kaiming_uniform.")
    ] = None,
    placebo: Annotated[
        str | None,
        typer.Option(help="Your own control, written like METHOD. Default: its norms and singular values, no pattern."),
    ] = None,
    data_dir: DataOption = None,
    results: ResultsOption = LOCAL,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Run again what failed.")] = False,
) -> None:
    """Train a method, its own base and its placebo under the standard protocol, and say where it stands.

    There are two planned looks, at 8 and at 12 seeds. After a stop, the same command goes on, and it never repeats a
    look. Exit code 1: a run has failed.
    """
    folder = datasets.data_dir(data_dir)
    written, plan, seconds, useless = prepare(method, tier, base, results, folder, placebo)
    study, failed = written.stem, 0
    if useless:
        console.print(f"without a placebo: {useless}", style="yellow")
    beside = [ROOT / REFERENCE / name for name in TIERS[tier]]
    options = LaunchOptions(executor="local", data_dir=folder, results=results, retry_failed=retry_failed)
    argv = ["vitinit", "run", str(written), "--results", str(results)]
    while not failed:
        if target := plan.target:
            grid = grids.load(str(written), plan.seeds[plan.taken[-1].n if plan.taken else 0 : target])
            done = Store(results).read(study).done
            if left := [cell for cell in grid.cells if cell.run_id not in done]:
                needed = duration(len(left) * seconds)
                console.print(f"the look at {target} seeds: about {needed}, one run at a time, by two steps")
            try:
                failed = launch(grid, options, Display(console), argv).exit_code
            except KeyboardInterrupt as stopped:
                console.print(str(stopped))
                raise
        import_module("vitinit.analysis.standing").run(study, [results], beside)
        plan = looks.read(results / study) or plan
        if plan.target in (None, target):  # it is final, or nothing was looked at, and what is printed says why
            break
    raise typer.Exit(failed)


def named(text: str, what: str = "METHOD") -> dict[str, Any]:
    """A method or base as the command line names it: as a grid names it, files of one's own by their whole paths.

    `mimetic`, `{name: mimetic, parts: qk}`, `package.module:Class`, or `path/to/file.py:Class`. `what` is the argument.

    Raises:
        VitinitError: it has no name, or names a file without a class.
    """
    fields = mapping(os.fsencode(text), Path(what)) if text.lstrip().startswith("{") else {"name": text}
    name = str(fields.get("name") or "")
    if not name:
        raise VitinitError(f"{what} needs a name: NAME, or {{name: NAME, ...}}")
    plugins.pinned(name, Path.cwd())
    return {**fields, "name": str(Path.cwd() / name) if plugins.in_a_file(name) else name}


def prepare(
    text: str, tier: str, base: str | None, results: Path, data: Path, placebo: str | None = None
) -> tuple[Path, looks.Looks, float, str]:
    """Write the grid of a method, its base and its placebo, in the setting of a tier, and the plan of looks beside it.

    The study is named after the method and a hash of its runs and of the files of its initialisers: an edited method is
    another study, and no record of before is taken for one of it. (Of what these files import nothing is known.)

    Args:
        text: The method as the command line names it.
        tier: A key of `TIERS`.
        base: The base; None: kaiming_uniform.
        results: Where grid and records go.
        data: Where datasets lie.
        placebo: A control of one's own; None: the method's own placebo, if it can have one.

    Returns:
        The grid, written where the results are, whose stem is the study; its plan, with the looks of before; about how
        many seconds a run takes here; and the reason why there is no placebo, empty where there is one.

    Raises:
        VitinitError: the method or the base is not to be had or does not fit the model, or the data set is not here;
            nothing is written then.
    """
    method, below = named(text), named("kaiming_uniform" if base is None else base, "--base")
    shipped = grids.HERE / "grids" / f"{TIERS[tier][0]}.yaml"
    plan = looks.Looks(tier=tier, worth=1.0, seeds=list(range(looks.PLAN[-1][0])), plan=list(looks.PLAN))
    row = str(method["name"]).rpartition(":")[2]
    base_alone = {"base": below}
    rows = {f"{row}'s base": base_alone, row: {**base_alone, "method": method}}
    control = named(placebo, "--placebo") if placebo else {"name": "placebo", "of": method, "keep": "spectrum"}
    control_row = f"{row}, placebo"

    def resolved(rows: dict[str, Any]) -> tuple[dict[str, Any], list[Cell]]:
        content = {
            "title": f"{row} under the standard protocol, version 1, tier {tier}",
            "contrasts": [[row, other] for other in rows if other != row],
            "analysis": {"test": "none"},  # its looks test, and nothing else
            "placebos": {control_row: row} if placebo and control_row in rows else {},
            "rows": rows,
            "blocks": [{**mapping(shipped.read_bytes(), shipped)["blocks"][0], "seeds": plan.seeds}],
        }
        return content, grids.resolve(content, Path("rank.yaml"), [0]).cells

    from vitinit.runners.one_run.carry_out import measured_seconds

    setting = Setting(results, "rank", data, Execution(default_device(), 1, "inline"), {})
    content, cells = resolved(rows)
    useless = ""
    if misfits := [cell.misfit for cell in cells if cell.misfit]:
        raise VitinitError(misfits[0])
    if reason := datasets.unavailable(cells[0].spec.dataset, data):
        raise VitinitError(f"the standard protocol needs {cells[0].spec.dataset.name}, and {reason}")
    try:
        whole, beside = resolved({**rows, control_row: {**base_alone, "method": control}})
        seconds = measured_seconds(beside[2], setting)
        content, cells = whole, beside
    except VitinitError as error:
        if placebo:
            raise
        useless = str(error)
        seconds = measured_seconds(cells[1], setting)  # where the method itself fails, that is the error
    digest = plugins.short_hash(repr([(cell.run_id, sorted(cell.sources.items())) for cell in cells]).encode())
    grid = results / f"rank-{re.sub(r'[^A-Za-z0-9_]', '_', row)}-{digest[:8]}.yaml"
    with os_errors(f"cannot write {grid}"):
        write_with_folder(grid, to_yaml(content))
    before = looks.read(results / grid.stem)
    if before is None:
        looks.write(results / grid.stem, plan)
    return grid, before or plan, seconds, useless
